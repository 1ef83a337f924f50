"""Models, data and folders that are not ours, and what happens to them."""

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import pclc
from pclc.training import AdversarialConfig, TrainingError, adversarial_preset, mart_loss, run_directory
from pclc.training.loop import accuracy
from pclc.training.robust_losses import kl_rows, trades_loss
from pclc.training.run_directory import RunDirectory

CPU = pclc.Execution(device="cpu")
ONE_EPOCH = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=1, batch_size=8)


def own_data(seed: int) -> pclc.Dataset:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (16, 1, 8, 8), dtype=torch.uint8, generator=generator)
    return pclc.Dataset(images, torch.arange(16) % 2, ("a", "b"), "own", "train")


class Network(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 2), nn.BatchNorm1d(2))

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        assert state == {"version": 1}


def test_a_folder_with_other_images_is_refused(tmp_path: Path) -> None:
    pclc.train(pclc.create_model("lenet8", num_classes=2), own_data(0), ONE_EPOCH, out=tmp_path, execution=CPU)
    pclc.train(pclc.create_model("lenet8", num_classes=2), own_data(0), ONE_EPOCH, out=tmp_path, execution=CPU)
    with pytest.raises(ValueError, match=r"holds another one \(different: dataset\.hash"):
        pclc.train(pclc.create_model("lenet8", num_classes=2), own_data(1), ONE_EPOCH, out=tmp_path, execution=CPU)


def test_a_name_that_is_known_does_not_hide_other_examples(digits: pclc.Dataset, tmp_path: Path) -> None:
    """A part of a known data set, or one with other labels, is another one under the same name."""

    def run(dataset: pclc.Dataset, out: str) -> None:
        pclc.train(pclc.create_model("lenet8"), dataset, ONE_EPOCH, out=tmp_path / out, execution=CPU)

    run(digits.subset(torch.arange(16)), "part")
    run(digits.subset(torch.arange(16)), "part")
    with pytest.raises(ValueError, match=r"holds another one \(different: dataset\.hash"):
        run(digits.subset(torch.arange(16, 32)), "part")
    run(digits, "whole")
    with pytest.raises(ValueError, match=r"holds another one \(different: dataset\.hash"):
        run(replace(digits, labels=(digits.labels + 1) % 10), "whole")
    changed = pclc.load_dataset("digits")
    changed.labels[0] = 5
    with pytest.raises(ValueError, match=r"holds another one \(different: dataset\.hash"):
        run(changed, "whole")


def test_a_checkpoint_of_other_settings_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    def run(lr: float) -> pclc.training.TrainResult:
        model, config = pclc.create_model("lenet8", num_classes=2), replace(ONE_EPOCH, lr=lr, epochs=2)
        return pclc.train(model, own_data(0), config, out=tmp_path, execution=CPU, checkpoint_seconds=0)

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            run(0.01)
    (tmp_path / "config.json").unlink()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"the checkpoint in .* to belong to this run, but it belongs to one"):
            run(0.02)
    (tmp_path / "checkpoint.pt").unlink()
    assert run(0.02).history[0]["lr"] == 0.02


def test_a_whole_number_is_the_same_setting_as_its_float(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    def run(weight_decay: float) -> pclc.training.TrainResult:
        model, config = pclc.create_model("lenet8", num_classes=2), replace(ONE_EPOCH, weight_decay=weight_decay)
        return pclc.train(model, own_data(0), config, out=tmp_path, execution=CPU, checkpoint_seconds=0)

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            run(0)
    assert len(run(0.0).history) == 1  # from the checkpoint
    assert len(run(0.0).history) == 1  # from the result
    with pytest.raises(ValueError, match=r"different: train\.weight_decay 0 -> 0\.1\)"):
        run(0.1)


def test_a_result_of_unknown_settings_is_not_taken(tmp_path: Path) -> None:
    model = pclc.create_model("lenet8", num_classes=2)
    pclc.train(model, own_data(0), ONE_EPOCH, out=tmp_path, execution=CPU)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match=r"has a training\.json and no config\.json"):
        pclc.train(model, own_data(0), replace(ONE_EPOCH, lr=0.1), out=tmp_path, execution=CPU)


def test_of_two_that_begin_at_once_in_a_new_folder_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = run_directory._write

    def slowly(file: Path, content: dict[str, object]) -> None:
        time.sleep(0.3)
        write(file, content)

    def begin(seed: int) -> str:
        try:
            RunDirectory(tmp_path / "run").begin({"seed": seed})
        except ValueError as error:
            return str(error)
        return "begun"

    monkeypatch.setattr(run_directory, "_write", slowly)
    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(begin, range(2)))
    assert "holds another one (different: seed" in said[0]
    assert said[1] == "begun"


@pytest.mark.parametrize("adversarial", [None, adversarial_preset("madry-mnist", steps=1)])
def test_a_model_with_too_few_outputs_is_refused(
    adversarial: pclc.AdversarialConfig | None, digits: pclc.Dataset, tmp_path: Path
) -> None:
    config = replace(ONE_EPOCH, adversarial=adversarial)
    sentence = r"logits of shape \(N, 10\), .* labels go up to 9, but got \(2, 5\) for 2 images"
    with pytest.raises(ValueError, match=sentence):
        pclc.train(pclc.create_model("lenet8", num_classes=5), digits, config, out=tmp_path / "run", execution=CPU)
    assert not (tmp_path / "run").exists()
    tuples = type("Tuples", (Network,), {"forward": lambda self, x: (x, x)})
    with pytest.raises(ValueError, match="but got a tuple"):
        pclc.train(tuples(), own_data(0), config, execution=CPU)


def test_a_model_with_more_outputs_than_classes_is_said() -> None:
    with pytest.warns(UserWarning, match="`model` gives 10 logits, but 'own' has 2 classes") as said:
        pclc.train(pclc.create_model("lenet8"), own_data(0), ONE_EPOCH, execution=CPU)
    assert said[0].filename == __file__


def test_a_model_with_a_softmax_of_its_own_is_said() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2), nn.Softmax(1))
    with pytest.warns(pclc.attacks.ProbabilityWarning, match="seems to return probabilities") as said:
        pclc.train(model, own_data(0), ONE_EPOCH, execution=CPU)
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pclc.train(model[:2], own_data(0), ONE_EPOCH, execution=CPU)


def test_a_finished_run_is_measured_on_the_test_set_that_is_given(tmp_path: Path) -> None:
    first = pclc.train(pclc.create_model("lenet8", num_classes=2), own_data(0), ONE_EPOCH, out=tmp_path, execution=CPU)
    again = pclc.train(
        pclc.create_model("lenet8", num_classes=2),
        own_data(0),
        ONE_EPOCH,
        out=tmp_path,
        test=own_data(1),
        execution=CPU,
    )
    assert first.test_accuracy is None
    assert again.test_accuracy == accuracy(first.model, own_data(1), CPU)


def test_wrong_things_are_refused_before_the_first_epoch() -> None:
    with pytest.raises(TypeError, match=r"Expected `test` to be a pclc\.Dataset, but got str"):
        pclc.train(Network(), own_data(0), ONE_EPOCH, test="digits")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Expected `config` to be a pclc\.TrainConfig, but got dict"):
        pclc.train(Network(), own_data(0), {"epochs": 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Expected argument `labels` to be a tensor, but got list"):
        pclc.Dataset(own_data(0).images, [0] * 16, ("a", "b"), "own", "train")  # type: ignore[arg-type]


def test_a_test_set_that_does_not_fit_is_refused_before_the_first_epoch(tmp_path: Path) -> None:
    model, data = pclc.create_model("lenet8", num_classes=2), own_data(0)
    assert pclc.train(model, data, ONE_EPOCH, test=replace(data, classes=["a", "b"]), execution=CPU).test_accuracy  # type: ignore[arg-type]
    turned = replace(data, classes=("b", "a"))
    with pytest.raises(ValueError, match=r"`test` to have its classes in the order .* but got \('b', 'a'\) and"):
        pclc.train(model, data, ONE_EPOCH, test=turned, out=tmp_path / "run", execution=CPU)
    colour = replace(data, images=data.images.expand(-1, 3, -1, -1))
    with pytest.raises(ValueError, match=r"Expected `x` to be of shape \(N, 1, 8, 8\), but got \(2, 3, 8, 8\)"):
        pclc.train(model, data, ONE_EPOCH, test=colour, out=tmp_path / "run", execution=CPU)
    assert not (tmp_path / "run").exists()


def test_adversarial_training_that_diverges_says_so() -> None:
    recipe = adversarial_preset("madry-mnist", steps=1)
    config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=2, batch_size=8, lr=1e30, adversarial=recipe)
    with pytest.raises(TrainingError, match="training has diverged"):
        pclc.train(pclc.create_model("lenet8", num_classes=2), own_data(0), config, execution=CPU)


def test_the_best_epoch_of_a_model_with_more_than_tensors() -> None:
    recipe = adversarial_preset("madry-mnist", steps=1)
    config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=2, batch_size=4, validation=0.5, adversarial=recipe)
    assert pclc.train(Network(), own_data(0), config, execution=CPU).best_epoch


def test_a_default_device_decides_nothing() -> None:
    """Where nobody says on which device tensors are made somewhere else, as after `torch.set_default_device`."""
    model, data = Network(), own_data(0)
    recipe = AdversarialConfig("trades", eps=(0.05, 0.1), steps=1)
    config = replace(ONE_EPOCH, augmentation="authors", ema=0.9, validation=0.5, adversarial=recipe)
    with torch.device("meta"):
        assert len(pclc.train(model, data, config, execution=CPU, test=data).history) == 1


def test_measuring_accuracy_leaves_modes_alone() -> None:
    model = Network().train()
    model[2].eval()
    accuracy(model, own_data(0), CPU)
    assert [module.training for module in model.modules()] == [True, True, True, False]
    with pytest.raises(RuntimeError):
        accuracy(nn.Sequential(model, nn.Linear(7, 2)), own_data(0), CPU)
    assert model.training


@pytest.mark.parametrize("adversarial", [None, AdversarialConfig("trades", eps=0.1, steps=1)])
def test_a_frozen_batch_norm_keeps_its_statistics(adversarial: AdversarialConfig | None) -> None:
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 2), nn.BatchNorm1d(2)).eval()
    frozen, free = model[0].requires_grad_(False), model[3]
    pclc.train(model, own_data(0), replace(ONE_EPOCH, warm_up_epochs=1, adversarial=adversarial), execution=CPU)
    assert frozen.num_batches_tracked == 0
    assert free.num_batches_tracked == 4


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint\.pt to be a checkpoint, but it cannot be read"):
        RunDirectory(tmp_path).load_checkpoint()


def test_half_a_line_of_metrics_is_none(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1}\n{"epo')
    assert RunDirectory(tmp_path).metrics == [{"epoch": 1}]


@pytest.mark.parametrize("adversarial", [[0.0, 1.0, -torch.inf], [0.0, 1.0, 2.0]])
def test_a_masked_class_adds_nothing_to_kl(adversarial: list[float]) -> None:
    def loss(clean: Tensor) -> Tensor:
        return trades_loss(clean, torch.tensor([adversarial]), torch.tensor([0]))

    clean = torch.tensor([[1.0, 0.5, -torch.inf]], requires_grad=True)
    (grad,) = torch.autograd.grad(loss(clean), clean)
    assert grad.isfinite().all()
    both = kl_rows(torch.tensor([[1.0, 0.5, -torch.inf]]), torch.tensor([[0.0, 1.0, -torch.inf]]))
    torch.testing.assert_close(both, kl_rows(torch.tensor([[1.0, 0.5]]), torch.tensor([[0.0, 1.0]])))


@pytest.mark.parametrize("y", [0, 1, 2])
def test_mart_without_any_false_class(y: int) -> None:
    """Whichever the true class is: there is no rival, and nothing to learn."""
    logits = torch.full((1, 3), -torch.inf).index_fill(1, torch.tensor([y]), 1.0).requires_grad_()
    loss = mart_loss(logits, logits, torch.tensor([y]))
    (grad,) = torch.autograd.grad(loss, logits)
    assert loss == 0
    assert not grad.any()


@pytest.mark.parametrize(
    ("model", "error", "sentence"),
    [
        (lambda x: x.flatten(1), TypeError, "Expected `model` to be a torch.nn.Module, but got a function"),
        (nn.Flatten(), ValueError, "Expected `model` to have parameters that require gradients, but it has none"),
        (Network().requires_grad_(False), ValueError, "`model` to have parameters that require gradients"),
        (Network().half(), ValueError, "`model` to take float32 images, but its weights are torch.float16"),
        (Network().double(), ValueError, "`model` to take float32 images, but its weights are torch.float64"),
    ],
)
def test_what_cannot_be_trained_gets_a_sentence(model: nn.Module, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        pclc.train(model, own_data(0), ONE_EPOCH, execution=CPU)


def test_a_model_of_another_precision_that_takes_the_images_is_trained() -> None:
    class Double(Network):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.double())

    assert pclc.train(Double().double(), own_data(0), ONE_EPOCH, execution=CPU).history
