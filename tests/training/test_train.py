"""Training itself: it learns, it stops what cannot learn, and what it writes can be relied on."""

import json
from pathlib import Path

import pytest
import torch
from hungry import Hungry
from torch import nn

import pclc
from pclc import Execution, TrainConfig, TrainingError
from pclc.data import Dataset
from pclc.training import RunDirectory, accuracy
from pclc.training.progress import tensorboard

CPU = Execution(device="cpu")


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return pclc.create_model("lenet8")


@pytest.mark.parametrize("loss", ["ce", "gce", "cot", "pc", "pc-lc", "pc-lc-authors"])
def test_every_loss_learns(loss: str, digits: Dataset) -> None:
    config = TrainConfig(loss=loss, warm_up_epochs=4, epochs=4, batch_size=64)  # type: ignore[arg-type]
    result = pclc.train(network(), digits, config, execution=CPU, test=pclc.load_dataset("digits", "test"))
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.85
    assert not result.model.training
    assert [entry["criterion"] for entry in result.history] == [
        "+".join(p.criteria) for p in config.phases for _ in range(4)
    ]
    assert all(parameter.grad is None for parameter in result.model.parameters())


def test_one_step_is_adams(digits: Dataset) -> None:
    """An epoch of one batch does what the textbook loop does with that batch."""
    few = digits.subset(torch.arange(32))
    config = TrainConfig(loss="pc-lc", warm_up_epochs=0, epochs=1, batch_size=32, weight_decay=0.01)
    trained = pclc.train(network(), few, config, execution=CPU).model
    expected = network()
    optimizer = torch.optim.Adam(expected.parameters(), lr=0.01, weight_decay=0.01)
    pclc.PCLoss()(expected(few.images.float() / 255), few.labels).backward()
    optimizer.step()
    for got, wanted in zip(trained.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


def test_same_seed_same_bits_and_the_callers_generator_is_left_alone(digits: Dataset) -> None:
    config = TrainConfig(warm_up_epochs=1, epochs=1, batch_size=64)
    torch.manual_seed(123)
    first = pclc.train(network(), digits, config, execution=CPU).model.state_dict()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    model = network()
    torch.set_rng_state(before)
    second = pclc.train(model, digits, config, execution=CPU).model.state_dict()
    assert torch.get_rng_state().equal(before)
    assert all(first[name].equal(second[name]) for name in first)
    other = pclc.train(network(), digits, TrainConfig(warm_up_epochs=1, epochs=1, batch_size=64, seed=1), execution=CPU)
    assert not all(first[name].equal(value) for name, value in other.model.state_dict().items())


def test_each_phase_begins_with_a_fresh_optimizer_and_rate(digits: Dataset) -> None:
    config = TrainConfig(warm_up_epochs=3, epochs=3, batch_size=64)
    history = pclc.train(network(), digits, config, execution=CPU).history
    assert [entry["lr"] for entry in history] == pytest.approx([0.01, 0.002, 0.0004] * 2)


def test_validation_is_held_out(digits: Dataset) -> None:
    config = TrainConfig(loss="ce", warm_up_epochs=0, epochs=3, batch_size=64, validation=0.1)
    history = pclc.train(network(), digits, config, execution=CPU).history
    assert all(0 <= entry["validation_accuracy"] <= 1 for entry in history)
    assert history[-1]["validation_accuracy"] > 0.5


def test_a_batch_that_does_not_fit_gives_the_same_update(digits: Dataset) -> None:
    config = TrainConfig(loss="ce", warm_up_epochs=0, epochs=1, batch_size=32)
    few = digits.subset(torch.arange(64))
    whole = pclc.train(network(), few, config, execution=CPU)
    with pytest.warns(UserWarning, match="processed in 4 parts"):
        parts = pclc.train(Hungry(network(), 10), few, config, execution=CPU)
    for got, wanted in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
    assert parts.history[0]["loss"] == pytest.approx(whole.history[0]["loss"], rel=1e-4)


def test_divergence_is_said(digits: Dataset) -> None:
    model = network()
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingError, match=r"The loss is nan in epoch 1: .* Try a smaller learning rate \(now 0.01\)"):
        pclc.train(model, digits, TrainConfig(warm_up_epochs=0, epochs=2), execution=CPU)


def test_a_run_that_diverged_at_its_end_does_not_count_as_finished(digits: Dataset, tmp_path: Path) -> None:
    config = TrainConfig(loss="ce", warm_up_epochs=0, epochs=1, optimizer="sgd", lr=1e12)
    for _ in range(2):
        with pytest.raises(TrainingError, match="The loss is nan in epoch 1"):
            pclc.train(network(), digits, config, out=tmp_path, execution=CPU, checkpoint_seconds=0)
    assert not RunDirectory(tmp_path).finished


@pytest.mark.parametrize("adversarial", [None, pclc.AdversarialConfig("madry", eps=0.1, steps=1)])
@pytest.mark.parametrize("lr", [1e30, 1e38])  # weights that overflow in the network, and in the step
def test_a_last_step_that_diverged_is_said(
    lr: float, adversarial: pclc.AdversarialConfig | None, digits: Dataset, tmp_path: Path
) -> None:
    """The loss of its epoch is that of the steps before it, and finite."""
    config = TrainConfig(
        loss="ce", warm_up_epochs=0, epochs=1, batch_size=1437, optimizer="sgd", lr=lr, adversarial=adversarial
    )
    with pytest.raises(TrainingError, match="The logits are NaN or infinite after the last step in epoch 1: tr"):
        pclc.train(network(), digits, config, out=tmp_path, execution=CPU)
    assert not RunDirectory(tmp_path).finished


def test_collapse_is_said(digits: Dataset) -> None:
    """A dead network, all of whose ReLUs are off, stays at chance for ever."""
    model = network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    config = TrainConfig(loss="pc", warm_up_epochs=0, epochs=20)
    with pytest.raises(TrainingError, match="which is chance: training has collapsed"):
        pclc.train(model, digits, config, execution=CPU)


def test_slow_learning_is_not_called_a_collapse(digits: Dataset) -> None:
    config = TrainConfig(loss="ce", warm_up_epochs=0, epochs=6, lr=1e-4)
    assert len(pclc.train(network(), digits, config, execution=CPU).history) == 6


def test_accuracy_leaves_the_model_as_it_was(digits: Dataset) -> None:
    model = network().train()
    share = accuracy(model, digits.subset(torch.arange(100)), CPU)
    expected = (model(digits.images[:100].float() / 255).argmax(1) == digits.labels[:100]).double().mean()
    assert share == pytest.approx(float(expected))
    assert model.training


class TestRunDirectory:
    """Version 1, on which later work rests: whoever changes it changes the version."""

    CONFIG = TrainConfig(warm_up_epochs=1, epochs=1, batch_size=256)

    def run(self, digits: Dataset, out: Path) -> pclc.training.TrainResult:
        return pclc.train(
            network(), digits, self.CONFIG, out=out, execution=CPU, test=pclc.load_dataset("digits", "test")
        )

    def test_files_and_schema(self, digits: Dataset, tmp_path: Path) -> None:
        result = self.run(digits, tmp_path / "run")
        files = {path.name for path in (tmp_path / "run").iterdir()} - {"tensorboard"}
        assert files == {"config.json", "metrics.jsonl", "model.json", "model.safetensors", "training.json"}
        config = json.loads((tmp_path / "run" / "config.json").read_text())
        assert set(config) == {"version", "run", "hash", "versions"}
        assert config["version"] == 1
        assert set(config["versions"]) == {"pclc", "torch", "python"}
        assert set(config["run"]) == {"train", "dataset", "model", "precision"}
        assert config["run"]["train"] == self.CONFIG.as_dict()
        assert config["run"]["dataset"] == {"name": "digits", "examples": 1437}
        assert len(config["hash"]) == 16
        metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
        assert metrics == list(result.history)
        assert set(metrics[0]) == {
            "epoch", "criterion", "lr", "loss", "accuracy", "validation_accuracy", "images_per_second",
        }  # fmt: skip
        training = json.loads((tmp_path / "run" / "training.json").read_text())
        assert set(training) == {
            "version", "epochs", "seconds", "setup_seconds", "device",
            "train_accuracy", "test_accuracy", "test_examples",
        }  # fmt: skip

    def test_the_saved_model_is_the_trained_one(self, digits: Dataset, tmp_path: Path) -> None:
        result = self.run(digits, tmp_path)
        loaded = pclc.load_model(tmp_path)
        x = digits.images[:50].float() / 255
        torch.testing.assert_close(loaded(x), result.model(x))  # in another layout

    def test_a_finished_run_is_read_not_repeated(self, digits: Dataset, tmp_path: Path) -> None:
        first = self.run(digits, tmp_path)
        written = (tmp_path / "model.safetensors").stat().st_mtime_ns
        second = self.run(digits, tmp_path)
        assert (tmp_path / "model.safetensors").stat().st_mtime_ns == written
        assert second.history == first.history
        assert second.test_accuracy == first.test_accuracy
        x = digits.images[:50].float() / 255
        assert second.model(x).equal(first.model(x))

    def test_another_run_is_not_overwritten(self, digits: Dataset, tmp_path: Path) -> None:
        self.run(digits, tmp_path)
        other = TrainConfig(warm_up_epochs=1, epochs=1, batch_size=256, seed=1)
        with pytest.raises(ValueError, match=r"holds another one \(different: train.seed 0 -> 1\)"):
            pclc.train(network(), digits, other, out=tmp_path, execution=CPU)

    def test_unknown_versions_are_refused(self, digits: Dataset, tmp_path: Path) -> None:
        self.run(digits, tmp_path)
        file = tmp_path / "training.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "version": 2}))
        with pytest.raises(ValueError, match="to have version 1, but got 2"):
            _ = RunDirectory(tmp_path).result

    def test_a_folder_that_is_no_run(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="Expected a run directory with config"):
            _ = RunDirectory(tmp_path).config

    def test_tensorboard_gets_its_scalars(self, digits: Dataset, tmp_path: Path) -> None:
        pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
        self.run(digits, tmp_path)
        assert list((tmp_path / "tensorboard").glob("events.*"))

    def test_tensorboard_forgets_epochs_that_are_done_again(self, tmp_path: Path) -> None:
        events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        for done, losses in ((0, (3.0, 2.0, 1.0)), (1, (4.0,))):
            with tensorboard(tmp_path, done) as board:
                for epoch, loss in enumerate(losses, start=done + 1):
                    board({"epoch": epoch, "loss": loss})
        seen = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("loss")
        assert [(event.step, event.value) for event in seen] == [(1, 3.0), (2, 4.0)]


@pytest.mark.cuda
class TestOnCuda:
    @pytest.mark.parametrize("loss", ["ce", "pc-lc", "cot"])
    def test_a_captured_run_is_the_eager_run(self, loss: str, digits: Dataset) -> None:
        config = TrainConfig(loss=loss, warm_up_epochs=2, epochs=2, batch_size=64)  # type: ignore[arg-type]
        histories = []
        for graphs in (False, True):
            execution = Execution(device="cuda", precision="fp32", cuda_graphs=graphs)
            histories.append(pclc.train(network(), digits, config, execution=execution).history)
        # Rounding differs, and training amplifies it from epoch to epoch.
        for eager, captured, tolerance in zip(*histories, (0.01, 0.05, 0.1, 0.1), strict=True):
            assert captured["loss"] == pytest.approx(eager["loss"], rel=tolerance)
        assert histories[1][-1]["accuracy"] > 0.8

    def test_compiled_bf16_with_dropout_and_augmentation(self) -> None:
        images = torch.randint(0, 256, (512, 3, 32, 32), dtype=torch.uint8)
        labels = torch.arange(512) % 4
        images[:, 0] //= (labels + 1).view(-1, 1, 1).to(torch.uint8)
        dataset = Dataset(images, labels, ("a", "b", "c", "d"), "noise", "train")
        torch.manual_seed(0)
        model = pclc.create_model("vgg13", num_classes=4)
        config = TrainConfig(
            loss="pc-lc", warm_up_epochs=6, epochs=2, batch_size=64, augmentation="crop-flip", lr=0.001
        )
        result = pclc.train(model, dataset, config, execution=Execution(device="cuda", compile=True))
        assert result.history[5]["loss"] < result.history[0]["loss"]
        assert result.setup_seconds > 0

    def test_a_resumed_run_goes_on(self, digits: Dataset, tmp_path: Path) -> None:
        config = TrainConfig(loss="ce", warm_up_epochs=2, epochs=3, batch_size=64)
        execution = Execution(device="cuda", precision="fp32")
        whole = pclc.train(network(), digits, config, execution=execution)

        class KilledError(Exception):
            pass

        original = RunDirectory.append_metrics

        def kill_after_three(self: RunDirectory, entry: dict[str, object]) -> None:
            if entry["epoch"] == 4:
                raise KilledError
            original(self, entry)

        RunDirectory.append_metrics = kill_after_three  # type: ignore[method-assign, assignment]
        try:
            with pytest.raises(KilledError):
                pclc.train(network(), digits, config, out=tmp_path, execution=execution, checkpoint_seconds=0)
        finally:
            RunDirectory.append_metrics = original  # type: ignore[method-assign]
        resumed = pclc.train(network(), digits, config, out=tmp_path, execution=execution, checkpoint_seconds=0)
        assert resumed.history[-1]["loss"] == pytest.approx(whole.history[-1]["loss"], rel=5e-2)


def test_what_is_no_data_set_is_said(digits: Dataset) -> None:
    with pytest.raises(TypeError, match=r"Expected `dataset` to be a pclc.Dataset .* but got tuple."):
        pclc.train(pclc.create_model("lenet8"), (digits.images, digits.labels), execution=CPU)


def test_a_batch_that_is_larger_than_the_data_is_said(digits: Dataset) -> None:
    few = digits.subset(torch.arange(20))
    config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=1, batch_size=64)
    with pytest.warns(UserWarning, match="Each batch holds all 20 images, because `batch_size` is 64."):
        pclc.train(pclc.create_model("lenet8"), few, config, execution=CPU)
