"""Robust accuracy of run directories, side by side."""

from pathlib import Path

import pytest

import pclc
from pclc.bench.robustness import bench_robustness
from pclc.training import AdversarialConfig


@pytest.mark.parametrize(("eps", "words"), [((0.05, 0.1), "0.05 to 0.1"), (1, "1.0")])
def test_any_eps_of_adversarial_training_has_words(
    eps: float | tuple[float, float], words: str, tmp_path: Path
) -> None:
    recipe = AdversarialConfig("mix", eps=eps, steps=1)
    config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=1, adversarial=recipe)
    pclc.train(pclc.create_model("lenet8"), pclc.load_dataset("digits"), config, out=tmp_path)
    test, execution = pclc.load_dataset("digits", "test"), pclc.Execution(device="cpu")
    found = bench_robustness([tmp_path], [test], ["fgsm(eps=0.1)"], execution, examples=10)
    assert {row["training"] for row in found.rows} == {f"adversarial (mix with cross-entropy, eps {words}), 1 epochs"}
