"""Adversarial training as a whole: the textbook's step, robustness that plain training lacks, the best epoch, files."""

import copy
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hungry import Hungry
from torch import nn

import pclc
from pclc import Execution, TrainConfig
from pclc.attacks import PGD
from pclc.attacks.frozen import frozen
from pclc.data import Dataset
from pclc.execution import made_ready, ready
from pclc.execution.settings import Precision
from pclc.training import (
    METHODS,
    AdversarialConfig,
    CatastrophicOverfittingWarning,
    RunDirectory,
    adversarial_config,
    adversarial_preset,
    loop,
    selection,
    step,
)
from pclc.training.batch_loss import Batch, adversarial_loss
from pclc.training.processes import Processes
from pclc.training.selection import robust_accuracy, selection_attack, watched_examples

CPU = Execution(device="cpu")


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return pclc.create_model("lenet8")


def quick(**changes: object) -> TrainConfig:
    numbers = {"loss": "ce", "warm_up_epochs": 0, "epochs": 2, "batch_size": 128}
    return TrainConfig(**{**numbers, **changes})  # type: ignore[arg-type]


def noise() -> Dataset:
    """Of four classes that differ in how much red there is."""
    images = torch.randint(0, 256, (512, 3, 32, 32), dtype=torch.uint8)
    labels = torch.arange(512) % 4
    images[:, 0] //= (labels + 1).view(-1, 1, 1).to(torch.uint8)
    return Dataset(images, labels, ("a", "b", "c", "d"), "noise", "train")


def fgsm(model: nn.Module, x: torch.Tensor, y: torch.Tensor, eps: float) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(model(leaf), y), leaf)
    return (x + eps * gradient.sign()).clamp(0, 1)


def test_one_step_is_the_textbooks(digits: Dataset) -> None:
    """An epoch of one batch of the paper's mix: FGSM, half and half, one update of SGD with Nesterov momentum."""
    few = digits.subset(torch.arange(32))
    recipe = AdversarialConfig("mix", eps=0.1, steps=1, random_start=False)
    config = quick(epochs=1, batch_size=32, adversarial=recipe, optimizer="sgd", lr=0.1, weight_decay=0.01)
    result = pclc.train(network(), few, config, execution=CPU)
    expected = network()
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    x, y = few.images.float() / 255, few.labels
    x_adv = fgsm(expected, x, y, 0.1)
    loss = (F.cross_entropy(expected(x), y) + F.cross_entropy(expected(x_adv), y)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    assert result.history[0]["loss"] == pytest.approx(loss.item(), rel=1e-4)
    for got, wanted in zip(result.model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


def test_one_step_of_pc_is_the_formula(digits: Dataset) -> None:
    """The same with every term of method "pc", and with labels smoothed in its cross-entropy."""
    few = digits.subset(torch.arange(32))
    recipe = AdversarialConfig(
        "pc", eps=0.1, steps=1, random_start=False, beta=3.0, margin=0.9, clean_share=0.25, kl_weight=2.0,
        logit_weight=0.4,
    )  # fmt: skip
    config = quick(epochs=1, batch_size=32, adversarial=recipe, optimizer="sgd", lr=0.1, label_smoothing=0.1)
    result = pclc.train(network(), few, config, execution=CPU)
    expected = network()
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    x, y = few.images.float() / 255, few.labels
    clean, adversarial = expected(x), expected(fgsm(expected, x, y, 0.1))
    f, f_adv = clean.softmax(1), adversarial.softmax(1)
    f_y, a_y = (tensor.gather(1, y[:, None]) for tensor in (f_adv, adversarial))
    false = torch.ones_like(f).scatter(1, y[:, None], 0).bool()
    pc = (f_adv + 0.9 - f_y).clamp(min=0)[false].sum() / 9 / 32
    lc = (a_y.squeeze(1) - adversarial.masked_fill(~false, -torch.inf).amax(1)).clamp(min=0).mean()
    kl = (f * (f.log() - f_adv.log())).sum(1).mean()
    own, other = (F.cross_entropy(z, y, label_smoothing=0.1) for z in (adversarial, clean))
    loss = 0.75 * own + 0.25 * other + 3 * pc + 2 * kl + 0.4 * lc
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    assert result.history[0]["loss"] == pytest.approx(loss.item(), rel=1e-4)
    for got, wanted in zip(result.model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


class Tied(nn.Module):
    """Uses the weights of a convolution also where its BatchNorm does not come after them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        again: torch.Tensor = self.head((self.body(x) + F.conv2d(x, self.body[0].weight)).mean((2, 3)))
        return again


@pytest.mark.parametrize("kind", [Tied, lambda: nn.Sequential(*Tied().body, nn.Flatten(), nn.Linear(32 * 36, 10))])
def test_what_is_attacked_is_the_model_when_batch_norm_has_moved(
    digits: Dataset, kind: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a run as on CUDA, without its kernels. BatchNorm changes nothing as it begins, when the two are compared."""

    def rectified(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *geometry: Any) -> torch.Tensor:
        return F.conv2d(x, weight, bias, *geometry).relu()

    def captured(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
        work()
        return work

    def seen(*given: Any) -> Any:
        attacked.append(given[1])
        return adversarial_loss(*given)

    attacked: list[Callable[[], nn.Module]] = []
    monkeypatch.setattr(ready, "_chooses_kernels", lambda execution: True)
    monkeypatch.setattr(torch, "cudnn_convolution_relu", rectified)
    monkeypatch.setattr(Execution, "captures", property(lambda execution: execution.cuda_graphs is None))
    monkeypatch.setattr(step, "captured", captured)
    monkeypatch.setattr(loop, "adversarial_loss", seen)
    torch.manual_seed(0)
    model, x = kind(), digits.images[:50].float() / 255
    recipe = AdversarialConfig("madry", eps=0.1, steps=1)
    few, execution = digits.subset(range(256)), Execution(device="cpu", precision="tf32")
    pclc.train(model, few, quick(adversarial=recipe), execution=execution)
    with frozen(model):
        found = attacked[0]()
        torch.testing.assert_close(found(x), model(x), rtol=1e-3, atol=1e-3)
    assert (found is model) is (kind is Tied)


def test_a_model_comes_back_as_it_was_where_the_comparison_ends_early(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "leaves_nothing_to_fuse", lambda ready: True)
    monkeypatch.setattr(loop, "is_same", interrupted)
    monkeypatch.setattr(Execution, "captures", property(lambda execution: True))
    model, recipe = Tied(), AdversarialConfig("madry", eps=0.1, steps=1)
    with pytest.raises(KeyboardInterrupt):
        pclc.train(model, digits, quick(adversarial=recipe), execution=Execution(device="cpu", precision="tf32"))
    assert torch.equal(model.body[1].running_var, torch.ones(32))


@pytest.mark.parametrize(
    ("recipe", "passes"),
    [
        (AdversarialConfig("pc", eps=0.1, steps=2), [8, 8, 8]),
        (AdversarialConfig("pc", eps=0.1, steps=1, logit_weight=0.1), [8, 8]),
        (AdversarialConfig("pc", eps=0.1, steps=2, clean_share=0.5), [8, 8, 16]),
        (AdversarialConfig("pc", eps=0.1, steps=2, kl_weight=1.0), [8, 8, 16]),
        (AdversarialConfig("madry", eps=0.1, steps=2), [8, 8, 8]),
    ],
)
def test_clean_images_go_through_the_network_only_where_they_count(
    recipe: AdversarialConfig, passes: list[int], digits: Dataset
) -> None:
    """As many forward passes, of as many images, as cross-entropy alone."""
    model, sizes = network(), []

    def counted(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        logits: torch.Tensor = model(x)
        return logits

    batch = Batch(
        digits.images[:8].float() / 255, digits.labels[:8], torch.arange(8), torch.zeros(1, dtype=torch.int64)
    )
    step = adversarial_loss(model, lambda: counted, counted, recipe.resolved(), 0, CPU)
    loss, logits = step(nn.CrossEntropyLoss(), batch)
    assert sizes == passes
    assert logits.shape == (8, 10)
    assert loss.requires_grad


@pytest.mark.parametrize(
    ("setting", "relative"),
    [
        (AdversarialConfig("pc", steps=3, beta=0.0), AdversarialConfig("madry", steps=3)),
        (AdversarialConfig("pc", steps=1, beta=0.0), AdversarialConfig("fast")),
        (
            AdversarialConfig("pc", steps=3, beta=0.0, clean_share=1.0, kl_weight=6.0, objective="kl"),
            AdversarialConfig("trades", steps=3),
        ),
    ],
    ids=["madry", "fast", "trades"],
)
def test_without_pc_it_is_the_method_beside_it(
    setting: AdversarialConfig, relative: AdversarialConfig, digits: Dataset
) -> None:
    """A fair comparison: with beta 0 the bits are those of the method that PC is added to."""
    few = digits.subset(torch.arange(256))
    runs = [pclc.train(network(), few, quick(adversarial=recipe), execution=CPU) for recipe in (setting, relative)]
    for ours, others in zip(*(run.model.parameters() for run in runs), strict=True):
        assert ours.equal(others)


def test_twice_the_same(digits: Dataset) -> None:
    few = digits.subset(torch.arange(512))
    config = adversarial_config("digits", "pc", epochs=2, validation=0.1)
    first, second = (pclc.train(network(), few, config, execution=CPU) for _ in range(2))
    assert all(value.equal(second.model.state_dict()[name]) for name, value in first.model.state_dict().items())
    assert [entry["loss"] for entry in first.history] == [entry["loss"] for entry in second.history]


@pytest.fixture(scope="module")
def plain(digits: Dataset) -> nn.Module:
    return pclc.train(network(), digits, quick(epochs=12, lr=0.005, batch_size=64), execution=CPU).model


def left_under_pgd(model: nn.Module, eps: float) -> float:
    test = pclc.load_dataset("digits", "test")
    attack = PGD(eps=eps, alpha=eps / 4, steps=20)
    return 1 - attack.run(model, test.images.float() / 255, test.labels).success.double().mean().item()


@pytest.mark.parametrize("method", METHODS)
def test_more_robust_than_plain_training(method: str, plain: nn.Module, digits: Dataset) -> None:
    steps = None if method == "fast" else 4
    recipe = AdversarialConfig(method, eps=0.15, steps=steps, validate_every=12)  # type: ignore[arg-type]
    config = quick(epochs=12, lr=0.005, batch_size=64, adversarial=recipe)
    result = pclc.train(network(), digits, config, execution=CPU, test=pclc.load_dataset("digits", "test"))
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.75
    assert left_under_pgd(result.model, 0.1) > left_under_pgd(plain, 0.1) + 0.1
    assert left_under_pgd(result.model, 0.15) > left_under_pgd(plain, 0.15) + 0.2
    assert all(parameter.grad is None for parameter in result.model.parameters())


@pytest.mark.parametrize("name", ["pc", "pc-fast"])
def test_the_preset_is_more_robust_than_plain_training(name: str, plain: nn.Module, digits: Dataset) -> None:
    """The recipe with the optimizer, schedule and averaging that come with it."""
    config = adversarial_config("digits", adversarial_preset(name, eps=0.1, validate_every=12), epochs=12)
    result = pclc.train(network(), digits, config, execution=CPU, test=pclc.load_dataset("digits", "test"))
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.8
    assert left_under_pgd(result.model, 0.15) > left_under_pgd(plain, 0.15) + 0.15


@pytest.mark.parametrize("loss", ["pc-lc", "cot"])
def test_any_loss_outside_in_both_phases(loss: str, digits: Dataset) -> None:
    recipe = AdversarialConfig("madry", eps=0.05, steps=2, objective="margin")
    config = quick(loss=loss, warm_up_epochs=3, epochs=2, batch_size=64, adversarial=recipe)
    history = pclc.train(network(), digits, config, execution=CPU).history
    assert [entry["criterion"] for entry in history[2:4]] == ["+".join(phase.criteria) for phase in config.phases]
    assert history[-1]["accuracy"] > 0.5
    assert history[-1]["train_robust_accuracy"] > 0.5


class TestBestEpoch:
    RECIPE = AdversarialConfig("fast", eps=0.1)

    def run(self, digits: Dataset, monkeypatch: pytest.MonkeyPatch, robust: list[float], **changes: object):  # type: ignore[no-untyped-def]
        """A run that is told its robust accuracies, and the weights that it had after each epoch."""
        seen = []

        def told(model: nn.Module, *_: object) -> float:
            seen.append(copy.deepcopy(model.state_dict()))
            return robust[len(seen) - 1]

        monkeypatch.setattr(selection, "robust_accuracy", told)
        config = quick(adversarial=self.RECIPE, validation=0.1, **{"epochs": len(robust), **changes})
        return pclc.train(network(), digits, config, execution=CPU), seen

    def test_its_weights_are_the_models(self, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
        result, seen = self.run(digits, monkeypatch, [0.3, 0.5, 0.5, 0.4])
        assert result.best_epoch == 2
        assert [entry["validation_robust_accuracy"] for entry in result.history] == [0.3, 0.5, 0.5, 0.4]
        assert all(value.equal(seen[1][name]) for name, value in result.model.state_dict().items())
        assert not all(value.equal(seen[3][name]) for name, value in result.model.state_dict().items())

    def test_of_epochs_that_withstand_nothing_the_last_is_kept(
        self, digits: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        result, seen = self.run(digits, monkeypatch, [0.0, 0.0])
        assert result.best_epoch == 2
        assert all(value.equal(seen[1][name]) for name, value in result.model.state_dict().items())
        assert self.run(digits, monkeypatch, [0.0, 0.1, 0.0])[0].best_epoch == 2

    def test_averaged_weights_are_measured_and_kept(self, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
        own, own_seen = self.run(digits, monkeypatch, [0.5, 0.4])
        result, seen = self.run(digits, monkeypatch, [0.5, 0.4], ema=0.9)
        assert [e["loss"] for e in result.history] == [e["loss"] for e in own.history], "averaging does not disturb"
        assert not all(value.equal(own_seen[0][name]) for name, value in seen[0].items())
        assert all(value.equal(seen[0][name]) for name, value in result.model.state_dict().items())

    def test_the_warm_up_is_no_candidate(self, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
        result, _ = self.run(digits, monkeypatch, [0.6, 0.6, 0.4, 0.45], loss="pc-lc", warm_up_epochs=2, epochs=2)
        assert result.best_epoch == 4

    def test_measured_every_so_many_epochs_and_at_the_end(
        self, digits: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.RECIPE = AdversarialConfig("fast", eps=0.1, validate_every=2)
        result, _ = self.run(digits, monkeypatch, [0.3, 0.2, 0.25], epochs=5)
        measured = [entry["validation_robust_accuracy"] for entry in result.history]
        assert measured == [None, 0.3, None, 0.2, 0.25]
        assert result.best_epoch == 2

    def test_a_collapse_is_said_and_the_run_goes_on(self, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.warns(CatastrophicOverfittingWarning, match=r"Epoch 3: Robust accuracy has fallen from 50.0%"):
            result, _ = self.run(digits, monkeypatch, [0.3, 0.5, 0.1, 0.2])
        assert len(result.history) == 4
        assert result.best_epoch == 2

    def test_a_run_that_came_to_nothing_says_so_at_its_end(
        self, digits: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.warns(CatastrophicOverfittingWarning, match=r"Epoch 5: Robust accuracy was never above 4.0%"):
            self.run(digits, monkeypatch, [0.04, 0.0, 0.0, 0.01, 0.0], epochs=5)

    def test_one_step_crafting_with_pc_is_watched_too(self, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
        self.RECIPE = adversarial_preset("pc-fast")
        with pytest.warns(CatastrophicOverfittingWarning, match=r"Epoch 2: Robust accuracy has fallen from 40.0%"):
            self.run(digits, monkeypatch, [0.4, 0.1])

    def test_without_a_validation_split_it_is_the_last(self, digits: Dataset) -> None:
        result = pclc.train(network(), digits, quick(adversarial=self.RECIPE), execution=CPU)
        assert result.best_epoch is None
        assert all(0 <= entry["train_robust_accuracy"] <= 1 for entry in result.history)
        assert "validation_robust_accuracy" not in result.history[0]


def test_a_ramp_that_does_not_end_is_said(digits: Dataset) -> None:
    """A run that is asked for eps 0.3 and never trains with more than 0.2."""
    few = digits.subset(range(128))

    def run(ramp_epochs: int) -> None:
        recipe = AdversarialConfig("madry", eps=0.3, steps=1, ramp_epochs=ramp_epochs)
        pclc.train(network(), few, quick(adversarial=recipe, warm_up_epochs=1, epochs=1), execution=CPU)

    with pytest.warns(UserWarning, match=r"ends before its ramp of 2 epochs does: eps only grows to 0\.2, not to 0\.3"):
        run(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(1)


def test_robust_accuracy_is_that_of_the_attack(plain: nn.Module, digits: Dataset) -> None:
    some = digits.subset(torch.arange(300))
    attack = selection_attack(AdversarialConfig(eps=(0.05, 0.1)))
    assert attack == PGD(eps=0.1, alpha=0.025, steps=10, objective="margin")
    share = robust_accuracy(plain, some, attack, 0, Execution(device="cpu", batch_size=70), Processes())
    fooled = attack.run(plain, some.images.float() / 255, some.labels, seed=0).success
    assert share == pytest.approx(1 - fooled.double().mean().item(), abs=0.004)
    assert 0.1 < share < 0.9


class Noting(nn.Module):
    """Notes the types of what its first layer gives, and the largest batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 10), nn.Linear(10, 10)
        self.types: set[torch.dtype] = set()
        self.most = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.first(x.flatten(1)[:, :64])
        self.types.add(features.dtype)
        self.most = max(self.most, len(x))
        logits: torch.Tensor = self.last(features)
        return logits


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_robust_accuracy_is_measured_as_the_execution_says(precision: Precision, digits: Dataset) -> None:
    some, model = digits.subset(torch.arange(50)), Noting()
    settings = Execution(device="cpu", precision=precision, batch_size=20)
    robust_accuracy(model, some, selection_attack(AdversarialConfig(eps=0.1)), 0, settings, Processes())
    crafting = {"fp32": set(), "bf16": {torch.bfloat16}}[precision]
    assert model.types == {torch.float32} | crafting, "outcomes are decided in float32"
    assert model.most == 20


def test_watched_examples_keep_the_proportions(digits: Dataset) -> None:
    assert watched_examples(digits.subset(torch.arange(200))).labels.equal(digits.labels[:200])
    chosen = watched_examples(digits)
    assert len(chosen) == 1000
    shares = digits.labels.bincount() / len(digits) - chosen.labels.bincount() / 1000
    assert shares.abs().max() < 0.002


def test_the_run_directory_says_what_was_done(digits: Dataset, tmp_path: Path) -> None:
    config = quick(adversarial=AdversarialConfig("mix", eps=(0.05, 0.1), steps=2), validation=0.1, ema=0.9)
    first = pclc.train(network(), digits, config, out=tmp_path, execution=CPU)
    run = RunDirectory(tmp_path)
    assert run.config["train"] == json.loads(json.dumps(config.as_dict()))
    assert run.config["train"]["adversarial"]["alpha"] == 0.05
    assert run.result["best_epoch"] == first.best_epoch
    assert run.metrics == list(first.history)
    again = pclc.train(network(1), digits, config, out=tmp_path, execution=CPU)
    assert again.best_epoch == first.best_epoch
    x = digits.images[:50].float() / 255
    torch.testing.assert_close(pclc.load_model(tmp_path)(x), first.model(x))  # in another layout
    assert again.model(x).equal(first.model(x))


def test_a_batch_that_does_not_fit_gives_the_same_update(digits: Dataset) -> None:
    config = quick(epochs=1, batch_size=32, adversarial=AdversarialConfig("trades", eps=0.1, steps=2))
    few = digits.subset(torch.arange(64))
    execution = Execution(device="cpu", batch_size=20)
    whole = pclc.train(network(), few, config, execution=execution)
    with pytest.warns(UserWarning, match="processed in 4 parts"):
        parts = pclc.train(Hungry(network(), 20), few, config, execution=execution)
    for got, wanted in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)


def test_no_warning_without_reason(digits: Dataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pclc.train(network(), digits, quick(adversarial=AdversarialConfig("trades", eps=0.1, steps=2)), execution=CPU)


@pytest.mark.cuda
class TestOnCuda:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("optimizer", ["adam", "sgd"])
    def test_a_captured_run_is_the_eager_run(self, method: str, optimizer: str, digits: Dataset) -> None:
        recipe = AdversarialConfig(method, eps=(0.05, 0.1), steps=None if method == "fast" else 3)  # type: ignore[arg-type]
        config = quick(
            epochs=4, batch_size=64, adversarial=recipe, ema=0.9, optimizer=optimizer, lr=0.005, validation=0.1,
            schedule="cosine",
        )  # fmt: skip
        histories = []
        for graphs in (False, True):
            execution = Execution(device="cuda", precision="fp32", cuda_graphs=graphs)
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*cannot be captured.*")
                histories.append(pclc.train(network(), digits, config, execution=execution).history)
        for eager, captured in zip(*histories, strict=True):
            assert captured["loss"] == pytest.approx(eager["loss"], rel=5e-2)
            assert captured["validation_robust_accuracy"] == pytest.approx(eager["validation_robust_accuracy"], abs=0.1)

    def test_crafting_on_fused_layers_follows_the_weights(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Weights of the first step would be attacked in vain, and the loss be far too small."""
        made: list[nn.Module] = []
        monkeypatch.setattr(loop, "made_ready", lambda *given: made.append(made_ready(*given)) or made[-1])
        recipe = AdversarialConfig("madry", eps=8 / 255, steps=3)
        config = quick(epochs=4, batch_size=64, lr=0.001, validation=0.1, adversarial=recipe)
        histories = []
        for graphs in (False, True):
            torch.manual_seed(0)
            execution = Execution(device="cuda", precision="tf32", cuda_graphs=graphs)
            model = pclc.create_model("vgg13", num_classes=4)
            histories.append(pclc.train(model, noise(), config, execution=execution).history)
        assert made, "the captured run has fused layers"
        for eager, captured in zip(*histories, strict=True):
            assert captured["loss"] == pytest.approx(eager["loss"], rel=0.1)

    def test_compiled_bf16_with_batch_norm(self) -> None:
        dataset = noise()
        torch.manual_seed(0)
        model = pclc.create_model("vgg13", num_classes=4)
        config = quick(
            epochs=6, batch_size=64, lr=0.001, augmentation="crop-flip", ema=0.9, validation=0.1,
            adversarial=AdversarialConfig("trades", eps=2 / 255, steps=3),
        )  # fmt: skip
        result = pclc.train(model, dataset, config, execution=Execution(device="cuda", compile=True))
        assert result.history[-1]["loss"] < result.history[0]["loss"]
