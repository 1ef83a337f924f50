"""Models, data and folders that are not ours, and what happens to them."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import pclc
from pclc.training import TrainingError, adversarial_preset
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


def test_adversarial_training_that_diverges_says_so() -> None:
    recipe = adversarial_preset("madry-mnist", steps=1)
    config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=2, batch_size=8, lr=1e30, adversarial=recipe)
    with pytest.raises(TrainingError, match="the training has diverged"):
        pclc.train(pclc.create_model("lenet8", num_classes=2), own_data(0), config, execution=CPU)


def test_the_best_epoch_of_a_model_with_more_than_tensors() -> None:
    recipe = adversarial_preset("madry-mnist", steps=1)
    config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=2, batch_size=4, validation=0.5, adversarial=recipe)
    assert pclc.train(Network(), own_data(0), config, execution=CPU).best_epoch


def test_measuring_accuracy_leaves_modes_alone() -> None:
    model = Network().train()
    model[2].eval()
    accuracy(model, own_data(0), CPU)
    assert [module.training for module in model.modules()] == [True, True, True, False]
    with pytest.raises(RuntimeError):
        accuracy(nn.Sequential(model, nn.Linear(7, 2)), own_data(0), CPU)
    assert model.training


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
