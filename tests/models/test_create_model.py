import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from pclc.models import ModelConfig, Normalize, create_model, model_names, register_model, registry


class Foreign(nn.Module):
    def __init__(self, num_classes, width=4):
        super().__init__()
        self.linear = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.linear(x.flatten(1))


def takes_anything(**kwargs):
    model = nn.Identity()
    model.kwargs = kwargs
    return model


def not_a_model():
    return "a string"


not_callable = 3
made = nn.Linear(1, 1)


def raises():
    raise KeyError("a fault")


def exits():
    sys.exit(1)


def needs_more(path):
    return nn.Linear(1, 1)


@pytest.fixture
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))


def test_names_are_sorted_and_complete():
    assert set(model_names()) >= {"lenet5", "lenet8", "cnn3", "vgg13", "resnet56", "preact_resnet18"}
    assert list(model_names()) == sorted(model_names())


@pytest.mark.usefixtures("clean_registry")
def test_a_registered_factory_is_called_with_what_it_accepts():
    @register_model("tiny")
    def tiny(num_classes=10, image_size=2):
        return nn.Sequential(nn.Flatten(), nn.Linear(image_size**2, num_classes))

    assert "tiny" in model_names()
    model = create_model("tiny", num_classes=3, in_channels=1, image_size=4)
    assert model(torch.zeros(5, 1, 4, 4)).shape == (5, 3)
    assert create_model("tiny")(torch.zeros(5, 1, 2, 2)).shape == (5, 10)


@pytest.mark.usefixtures("clean_registry")
def test_names_are_registered_once_and_have_no_colon():
    with pytest.raises(ValueError, match="a model 'lenet5' is registered already"):
        register_model("lenet5")
    with pytest.raises(ValueError, match="a name without a colon, but got 'a:b'"):
        register_model("a:b")


def test_an_unknown_name_gets_the_choices_and_the_closest():
    with pytest.raises(ValueError, match=r"one of cnn3, lenet5.*but got 'LeNet-5'\. Did you mean 'lenet5'\?"):
        create_model("LeNet-5")
    with pytest.raises(ValueError, match=r"but got 'zzzzzzzz'\.$"):
        create_model("zzzzzzzz")


def test_the_configuration_is_complete_and_goes_with_copies():
    model = create_model("vgg13", num_classes=100, normalize=([0.5, 0.4, 0.3], [0.2, 0.2, 0.1]))
    expected = ModelConfig("vgg13", 100, 3, 32, ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1)))
    assert model.pclc_config == expected
    assert copy.deepcopy(model).pclc_config == expected
    assert pickle.loads(pickle.dumps(model)).pclc_config == expected
    assert "pclc_config" not in model.state_dict()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_classes": 1}, "`num_classes` to be an integer of at least 2, but got 1"),
        ({"num_classes": 10.0}, "`num_classes` to be an integer of at least 2, but got 10.0"),
        ({"in_channels": 0}, "`in_channels` to be an integer of at least 1, but got 0"),
        ({"image_size": True}, "`image_size` to be an integer of at least 1, but got True"),
        ({"normalize": (0.5, 0.5)}, r"`normalize` to be \(mean, std\) with a number for each channel, but got \(0.5"),
        ({"normalize": ([0.5],)}, r"`normalize` to be \(mean, std\)"),
        ({"normalize": ([0.5, 0.5], [1, 1])}, "1 or 1 numbers.*for images of 1 channels, but got 2"),
        ({"normalize": ([0.5], [0.0])}, r"`std` to be positive and finite, but got \[0.0\]"),
    ],
)
def test_bad_arguments_get_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        create_model("lenet5", **arguments)


def test_a_name_that_is_no_string_gets_a_sentence():
    with pytest.raises(ValueError, match="`name` to be the name of a model, but got 3"):
        create_model(3)


def test_normalize_by_hand():
    x = torch.rand(4, 3, 5, 5)
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    layer = Normalize(mean, std)
    for channel in range(3):
        expected = (x[:, channel] - mean[channel]) / std[channel]
        torch.testing.assert_close(layer(x)[:, channel], expected)
    assert not list(layer.parameters())
    assert layer.to("meta").mean.is_meta  # moves with the model


@pytest.mark.parametrize(
    ("mean", "std", "sentence"),
    [
        ([], [], "a number for each channel, but got 0 and 0"),
        ([0.1, 0.2], [1.0], "a number for each channel, but got 2 and 1"),
        ([float("nan")], [1.0], "`mean` to be finite"),
        ([0.0], [-1.0], "`std` to be positive and finite"),
    ],
)
def test_bad_normalisations_get_a_sentence(mean, std, sentence):
    with pytest.raises(ValueError, match=sentence):
        Normalize(mean, std)


def test_normalize_takes_tensors_and_arrays_as_lists():
    mean, std = [0.5, 0.25, 0.125], [1.0, 2.0, 4.0]
    layer = Normalize(torch.tensor(mean).view(3, 1, 1), np.array(std))
    assert (layer.mean.flatten().tolist(), layer.std.flatten().tolist()) == (mean, std)
    with pytest.raises(ValueError, match=r"a number for each channel, but got 0\.5 and 1\.0"):
        Normalize(0.5, 1.0)


def test_a_normalised_model_is_the_model_on_normalised_images():
    model = create_model("lenet5", normalize=([0.13], [0.31])).eval()
    x = torch.rand(3, 1, 28, 28)
    assert torch.equal(model(x), model.model((x - 0.13) / 0.31))
    assert torch.equal(model(x), model.head(model.features(x)))
    assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(x), model(x))


def test_a_model_from_elsewhere():
    model = create_model(f"{__name__}:Foreign", num_classes=3, in_channels=1, image_size=2)
    assert isinstance(model, Foreign)
    assert model.linear.out_features == 3
    assert model.pclc_config == ModelConfig(f"{__name__}:Foreign", 3, 1, 2)
    normalised = create_model(f"{__name__}:Foreign", normalize=([0.5], [0.5]))
    assert torch.equal(normalised(torch.full((1, 1, 2, 2), 0.5))[0], normalised.model.linear.bias)


def test_a_factory_with_open_arguments_gets_what_was_given():
    model = create_model(f"{__name__}:takes_anything", num_classes=3, image_size=8)
    assert model.kwargs == {"num_classes": 3, "image_size": 8}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (f"{__name__}:not_a_model", "to be a torch.nn.Module, but got a str"),
        (f"{__name__}:raises", r"'.*:raises' could not be made: KeyError: 'a fault'\.$"),
        (f"{__name__}:exits", "could not be made: SystemExit: 1"),
        (f"{__name__}:needs_more", "could not be made: TypeError: .* missing 1 required positional argument: 'path'"),
        (f"{__name__}:made", "to be a function or a class that makes a model, but got a model itself, a Linear"),
        (f"{__name__}:not_callable", "has no function or class 'not_callable'"),
        (f"{__name__}:missing", "has no function or class 'missing'"),
        ("no_such_package.models:f", "could not be imported: No module named 'no_such_package'"),
        (":f", "named `package.module:factory`, but got ':f'"),
        ("package:", "named `package.module:factory`, but got 'package:'"),
    ],
)
def test_bad_models_from_elsewhere_get_a_sentence(name, sentence):
    with pytest.raises(ValueError, match=sentence):
        create_model(name)


def test_the_working_folder_is_searched_while_a_model_is_made(tmp_path, monkeypatch):
    """As it is for `python -m pclc`; a console script has its own folder on the path instead."""
    (tmp_path / "found_here").mkdir()
    (tmp_path / "found_later.py").write_text("")
    (tmp_path / "found_here" / "nets.py").write_text(
        "from torch import nn\ndef net():\n    import found_later\n    return nn.Linear(1, 2)\n"
    )
    elsewhere = [entry for entry in sys.path if entry not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", [*elsewhere])
    monkeypatch.chdir(tmp_path)
    assert create_model("found_here.nets:net").out_features == 2
    assert sys.path == elsewhere


def test_a_module_that_breaks_while_it_is_imported_gets_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "breaks_here.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="could not be imported: ZeroDivisionError: division by zero"):
        create_model("breaks_here:net")


def test_importing_the_models_imports_no_safetensors():
    code = "import sys, pclc.models; sys.exit('safetensors' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def hands_on(**keywords):
    return Foreign(**keywords)


def test_a_factory_that_hands_keywords_on_gets_those_that_arrive():
    """As the builders of torchvision do, whose networks take num_classes and no in_channels."""
    model = create_model(f"{__name__}:hands_on", num_classes=3, in_channels=1, image_size=8)
    assert model.linear.out_features == 3
    with pytest.raises(ValueError, match=r"could not be made: TypeError.*'image_size'"):
        create_model(f"{__name__}:passes_what_nobody_takes", image_size=8)


def passes_what_nobody_takes(image_size):
    return Foreign(num_classes=3, image_size=image_size)
