"""What the demo trains, how it attacks, what it says; its run as a command is in tests/report."""

from pathlib import Path

import pytest
import torch

import pclc
from pclc.evaluation import Accuracy
from pclc.experiments.demo import DemoResult, Finding, attacks_of, budgets_of, configs_of


def share(percent: int) -> Accuracy:
    return Accuracy.of(torch.arange(100) < percent)


def finding(name: str, pgd: int, worst: int, verdict: str) -> Finding:
    return Finding(name, Path(name), share(98), share(pgd), share(worst), verdict)


def test_sentences_follow_the_figures() -> None:
    found = (
        finding("ce", 30, 20, "not refuted"),
        finding("pc-lc", 50, 5, "refuted"),
        finding("adversarial", 80, 79, "not refuted"),
    )
    first, second, third = DemoResult("digits", 0.1, 100, found).sentences()
    assert "at eps 0.1" in first
    assert "cross-entropy keeps 30.0 and PC-LC 50.0 % of 100 test images." in first
    assert "adversarial" not in first
    assert "cross-entropy keeps 20.0, PC-LC 5.0 and adversarial training 79.0 %." in second
    assert "refutes the figure of PC-LC and does not refute that of cross-entropy and adversarial training" in third
    nothing = DemoResult("digits", 0.1, 100, (finding("ce", 30, 20, "cannot judge"),)).sentences()[2]
    assert nothing.startswith("The audit cannot judge that of cross-entropy; ")
    assert "refutes" not in nothing


def test_attacks_are_those_of_the_paper_and_closer_ones() -> None:
    texts = [str(attack) for attack in attacks_of("mnist", (0.1, 0.2, 0.3))]
    assert 'pgd(eps=0.3, alpha=0.01, steps=40, stop="never")' in texts
    assert 'bim(eps=0.2, alpha=0.02, steps=10, stop="never")' in texts
    assert "apgd_t(eps=0.3, steps=30)" in texts
    kinds = {text.partition("(")[0] for text in texts}
    assert kinds == {"fgsm", "bim", "pgd", "mim", "apgd_t"}
    for eps in (0.05, 0.2):
        closer = [text for text in map(str, attacks_of("digits", (0.05, 0.2))) if f"eps={eps}," in text]
        assert len(closer) == 6


def test_budgets_have_something_to_see() -> None:
    digits = pclc.load_dataset("digits")
    eps, main = budgets_of(digits)
    assert main in eps
    assert list(eps) == sorted(eps)
    grey = pclc.Dataset(torch.zeros(1, 1, 28, 28, dtype=torch.uint8), torch.tensor([0]), ("a",), "mnist", "train")
    assert budgets_of(grey) == ((0.1, 0.2, 0.3), 0.2)
    colour = pclc.Dataset(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), torch.tensor([0]), ("a",), "cifar10", "train")
    assert budgets_of(colour).main == 0.04


@pytest.mark.parametrize("dataset", ["digits", "mnist", "cifar10"])
def test_every_loss_is_trained_as_long(dataset: str) -> None:
    configs = configs_of(dataset, 2, adversarial=True)
    assert list(configs) == ["ce", "gce", "pc-lc", "adversarial"]
    assert {(config.warm_up_epochs, config.epochs) for name, config in configs.items() if name != "adversarial"} == {
        (2, 2)
    }
    assert configs["adversarial"].adversarial is not None
    assert "adversarial" not in configs_of(dataset, None, adversarial=False)
