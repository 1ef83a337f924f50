"""What the demo trains, how it attacks, what it says; its run as a command is in tests/report."""

from pathlib import Path

import pytest
import torch

import pclc
from pclc.evaluation import Accuracy
from pclc.experiments.demo import (
    DemoResult,
    Extent,
    Finding,
    attacks_of,
    budgets_of,
    configs_of,
    extent_of,
    notes_of,
)


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
    first, second, third = DemoResult(0.1, 100, found).sentences()
    assert "at eps 0.1" in first
    assert "cross-entropy keeps 30.0 and PC-LC 50.0 % of 100 test images." in first
    assert "adversarial" not in first
    assert "cross-entropy keeps 20.0, PC-LC 5.0 and adversarial training 79.0 %." in second
    assert "refutes the figure of PC-LC and does not refute that of cross-entropy and adversarial training" in third
    nothing = DemoResult(0.1, 100, (finding("ce", 30, 20, "cannot judge"),)).sentences()[2]
    assert nothing.startswith("The audit, which runs a PGD of its own, cannot judge the figure of cross-entropy. ")
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
    configs = configs_of(dataset, Extent(epochs=2), adversarial=True)
    assert list(configs) == ["ce", "gce", "pc-lc", "adversarial"]
    assert {(config.warm_up_epochs, config.epochs) for name, config in configs.items() if name != "adversarial"} == {
        (2, 2)
    }
    assert configs["adversarial"].adversarial is not None
    assert "adversarial" not in configs_of(dataset, Extent(), adversarial=False)


def blank(name: str, *shape: int) -> pclc.Dataset:
    """A data set of this shape that takes no memory."""
    images = torch.zeros((), dtype=torch.uint8).expand(shape)
    return pclc.Dataset(images, torch.zeros((), dtype=torch.int64).expand(shape[0]), ("a",), name, "train")


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("mnist", (60_000, 1, 28, 28), Extent(None, 5, 500)),
        ("cifar10", (50_000, 3, 32, 32), Extent("lenet5", 4, 500)),
        ("tiny-imagenet", (100_000, 3, 64, 64), Extent("lenet5", 1, 500)),
    ],
)
def test_on_a_cpu_large_sets_are_cut_short(name: str, shape: tuple[int, ...], expected: Extent) -> None:
    data = blank(name, *shape)
    assert extent_of(data, torch.device("cpu")) == expected
    assert extent_of(data, torch.device("cuda")) == Extent(None, None, 1000)


def test_what_is_cut_short_is_said() -> None:
    runs, short, part = notes_of("cifar10", Extent("lenet5", 4, 500), 500, 10_000, adversarial=False)
    assert "pc-lc with the loss of the paper" in runs
    assert "adversarial" not in runs
    assert "lenet5 trained for 4 + 4 epochs at a learning rate of 0.001" in short
    assert "the paper's protocol here is vgg13 for 150 + 150" in short
    assert part.startswith("The first 500 of 10,000 test images")
    assert "the full demo is lenet8 for 30 + 30" in notes_of("digits", Extent(None, 2), 360, 360, False)[1]
    assert notes_of("digits", Extent("cnn3"), 360, 360, False)[1].startswith(
        "A demo with another network: cnn3 trained"
    )
    assert len(notes_of("mnist", Extent(), 10_000, 10_000, adversarial=True)) == 1
    runs, chosen = notes_of("digits", Extent(), 360, 360, adversarial=True)
    assert "adversarial with cross-entropy on adversarial examples" in runs
    assert "was set with test images in view" in chosen
    config = configs_of("digits", Extent(), adversarial=True)["adversarial"]
    assert config.adversarial is not None
    assert (config.adversarial.eps, config.batch_size) == (0.15, 32)


def test_a_small_network_on_colour_images_has_a_rate_at_which_it_learns() -> None:
    small = configs_of("cifar10", Extent("lenet5", 4), adversarial=True)
    assert {name: config.lr for name, config in small.items()} == {
        "ce": 0.001,
        "gce": 0.001,
        "pc-lc": 0.001,
        "adversarial": 0.05,
    }
    assert configs_of("cifar10", Extent(epochs=4), adversarial=False)["ce"].lr == 0.01
    assert configs_of("mnist", Extent("lenet5"), adversarial=False)["ce"].lr == 0.01
