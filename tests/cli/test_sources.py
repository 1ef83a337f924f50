"""Models from anywhere."""

import sys
from pathlib import Path

import pytest
import torch

import pclc
from pclc.cli.sources import Source

CPU = pclc.Execution(device="cpu")


@pytest.fixture
def data() -> pclc.Dataset:
    return pclc.load_dataset("digits", "test")


@pytest.fixture
def model() -> torch.nn.Module:
    return pclc.create_model("lenet8").eval()


def test_a_run_directory(model, data, tmp_path: Path) -> None:
    pclc.save_model(model, tmp_path)
    source, x = Source(run=tmp_path), data.images[:20] / 255
    torch.testing.assert_close(source.load(data, CPU)(x), model(x))  # perhaps in another layout
    assert source.dataset is None, "save_model alone does not say"


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_a_factory_with_weights(model, data, tmp_path: Path, monkeypatch, suffix: str) -> None:
    (tmp_path / "my_networks.py").write_text(
        "import pclc\ndef network(num_classes, image_size):\n    return pclc.create_model('lenet8', num_classes)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / f"model.{suffix}"
    if suffix == "pt":
        torch.save({"state_dict": model.state_dict()}, file)
    else:
        pclc.save_model(model, tmp_path)
    loaded, x = Source(factory="my_networks:network", weights=file).load(data, CPU), data.images[:20] / 255
    assert not loaded.training
    torch.testing.assert_close(loaded(x), model(x))


# RobustBench needs torchvision even to be imported, which nothing here may install. This stands in its place with the
# function that the adapter calls, its signature (version 1.1.1) and its folders for checkpoints.
ZOO = """
from pathlib import Path
import torch, pclc

def load_model(model_name, model_dir="./models", dataset="cifar10", threat_model="Linf", custom_checkpoint="",
               norm=None):
    path = Path(model_dir) / dataset / threat_model / f"{model_name}.pt"
    known = {"Toy2026": lambda: pclc.create_model("preact_resnet18", in_channels=3, image_size=32)}
    model = known[model_name]()
    model.load_state_dict(torch.load(path, map_location="cpu"))
    return model.eval()
"""


@pytest.fixture
def cifar() -> pclc.Dataset:
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    return pclc.Dataset(images, torch.tensor([1, 2]), tuple("0123456789"), "cifar10", "test")


def test_robustbench(cifar, tmp_path: Path, monkeypatch) -> None:
    package = tmp_path / "site" / "robustbench"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "utils.py").write_text(ZOO)
    monkeypatch.syspath_prepend(tmp_path / "site")
    model = pclc.create_model("preact_resnet18", in_channels=3, image_size=32).eval()
    folder = tmp_path / "models" / "cifar10" / "L2"
    folder.mkdir(parents=True)
    torch.save(model.state_dict(), folder / "Toy2026.pt")
    source = Source(robustbench="Toy2026", weights=tmp_path / "models", threat_model="L2")
    x = cifar.images.float() / 255
    torch.testing.assert_close(source.load(cifar, CPU)(x), model(x))
    assert source.name == "Toy2026"
    with pytest.raises(ValueError, match=r"a name in RobustBench's zoo for cifar10, L2, but got 'Other'"):
        Source(robustbench="Other", threat_model="L2").load(cifar, CPU)
    for name in ("robustbench", "robustbench.utils"):
        del sys.modules[name]


def test_robustbench_is_missing(cifar, data, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "robustbench", None)
    with pytest.raises(ModuleNotFoundError, match=r"RobustBench is not installed .* --robustbench needs it"):
        Source(robustbench="Standard").load(cifar, CPU)
    with pytest.raises(ValueError, match=r"--dataset to be one of cifar10, cifar100 .* but got 'digits'"):
        Source(robustbench="Standard").load(data, CPU)


def test_one_place_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"from one place, .* but got none"):
        Source()
    with pytest.raises(ValueError, match=r"but got run and factory"):
        Source(run=tmp_path, factory="lenet8")
    with pytest.raises(ValueError, match=r"--weights with --model"):
        Source(run=tmp_path, weights=tmp_path)
