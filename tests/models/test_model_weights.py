import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from pclc.models import Normalize, create_model, load_model, load_weights, save_model


class Tied(nn.Module):
    """Two names for one tensor, and a child whose own name is `module`."""

    def __init__(self, num_classes=4):
        super().__init__()
        self.module = nn.Linear(num_classes, num_classes)
        self.again = nn.Linear(num_classes, num_classes)
        self.again.weight = self.module.weight

    def forward(self, x):
        return self.again(self.module(x))


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def assert_same_weights(model, other):
    ours, theirs = model.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


def trained(name="resnet56", **arguments):
    """A model whose BatchNorm buffers are not the initial ones."""
    torch.manual_seed(0)
    model = create_model(name, **arguments)
    config = model.pclc_config
    model(torch.rand(4, config.in_channels, config.image_size, config.image_size))
    return model


@pytest.mark.parametrize("name", ["lenet5", "lenet8", "cnn3", "resnet56", "preact_resnet18"])
def test_round_trip_is_bit_equal(name, tmp_path):
    model = trained(name, num_classes=5)
    save_model(model, tmp_path / "a" / "run")
    loaded = load_model(tmp_path / "a" / "run")
    assert_same_weights(loaded, model)
    assert loaded.pclc_config == model.pclc_config
    assert not loaded.training
    x = torch.rand(2, *([model.pclc_config.in_channels] + 2 * [model.pclc_config.image_size]))
    assert torch.equal(loaded(x), model.eval()(x))


def test_round_trip_with_normalisation_and_the_same_names_as_without(tmp_path):
    model = trained("lenet5", normalize=([0.13], [0.31]))
    save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    x = torch.rand(2, 1, 28, 28)
    assert torch.equal(loaded(x), model.eval()(x))
    assert loaded.pclc_config.normalize == ((0.13,), (0.31,))
    plain = create_model("lenet5")
    load_weights(plain, tmp_path / "model.safetensors")
    assert_same_weights(plain, model.model)
    sequence = nn.Sequential(Normalize([0.13], [0.31]), create_model("lenet5"))
    load_weights(sequence, tmp_path / "model.safetensors")
    assert_same_weights(sequence[1], model.model)


def compiled(model):
    return torch.compile(model, backend="eager")


def compiled_inside(model):
    model.body[3] = torch.compile(model.body[3], backend="eager")
    return model


def channels_last(model):
    return model.to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "wrap", [channels_last, compiled, compiled_inside, nn.DataParallel, lambda model: compiled(nn.DataParallel(model))]
)
def test_layout_and_wrappers_leave_no_trace_in_the_file(wrap, tmp_path):
    model = trained()
    save_model(model, tmp_path / "plain")
    wrapped = wrap(model)
    save_model(wrapped, tmp_path / "wrapped")
    expected, found = (load_file(tmp_path / kind / "model.safetensors") for kind in ("plain", "wrapped"))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert_same_weights(load_model(tmp_path / "wrapped"), load_model(tmp_path / "plain"))
    with torch.no_grad():
        for parameter in wrapped.parameters():
            parameter.zero_()
    load_weights(wrapped, tmp_path / "plain" / "model.safetensors")  # and into a wrapped model
    save_model(wrapped, tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all(torch.equal(expected[name], again[name]) for name in expected)


def test_tied_weights_and_a_child_named_module(tmp_path):
    model = create_model(f"{__name__}:Tied", num_classes=4)
    save_model(model, tmp_path)
    loaded = load_model(tmp_path, trust_factory=True)
    assert_same_weights(loaded, model)
    assert loaded.again.weight is loaded.module.weight


def test_a_file_imports_nothing_unless_trusted(tmp_path):
    save_model(create_model(f"{__name__}:Tied"), tmp_path)
    with pytest.raises(ValueError, match=r"Tied', which is not a model of this package. Pass trust_factory=True"):
        load_model(tmp_path)


def test_loading_leaves_the_random_generator_alone(tmp_path):
    save_model(create_model("lenet8"), tmp_path)
    before = torch.get_rng_state()
    load_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_from_nowhere_cannot_be_saved(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"come from create_model or load_model.*but got a Linear without that note. Use create_model\('package",
    ):
        save_model(nn.Linear(2, 2), tmp_path)
    assert not os.listdir(tmp_path)


def test_a_failed_save_leaves_the_old_files(tmp_path, monkeypatch):
    model = trained("lenet8")
    save_model(model, tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in sorted(os.listdir(tmp_path))}
    assert list(before) == ["model.json", "model.safetensors"]

    def fail(path, data):
        path.open("wb").write(data[: len(data) // 2])
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    with pytest.raises(OSError, match="disk full"):
        save_model(create_model("lenet8"), tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in sorted(os.listdir(tmp_path))} == before


def test_the_configuration_file_is_held_fixed(tmp_path):
    save_model(create_model("lenet5", normalize=([0.5], [0.25])), tmp_path)
    assert json.loads((tmp_path / "model.json").read_text()) == {
        "format": "pclc-model",
        "version": 1,
        "model": {
            "name": "lenet5",
            "num_classes": 10,
            "in_channels": 1,
            "image_size": 28,
            "normalize": [[0.5], [0.25]],
        },
    }


GOOD = {"name": "lenet8", "num_classes": 10, "in_channels": 1, "image_size": 8, "normalize": None}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "to be JSON, but it cannot be read"),
        ("[]", "no format 'pclc-model'"),
        (json.dumps({"format": "pclc-model", "version": 2, "model": GOOD}), "of version 1, but got 2"),
        (json.dumps({"format": "pclc-model", "version": 1}), "`model` in .* to have image_size.*but got None"),
        (json.dumps({"format": "pclc-model", "version": 1, "model": {**GOOD, "x": 1}}), "`model` in .* to have"),
        (
            json.dumps({"format": "pclc-model", "version": 1, "model": {**GOOD, "num_classes": "10"}}),
            "`num_classes` to be an integer",
        ),
        (
            json.dumps({"format": "pclc-model", "version": 1, "model": {**GOOD, "num_classes": 7}}),
            r"do not fit the model: 2 of another shape \(head.weight \(10, 64\) instead of \(7, 64\), head.bias",
        ),
    ],
)
def test_a_bad_configuration_file_gets_a_sentence(content, sentence, tmp_path):
    save_model(create_model("lenet8"), tmp_path)
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(ValueError, match=sentence):
        load_model(tmp_path)


def test_missing_files_get_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"configuration of a model in .*model.json, but there is no such file"):
        load_model(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"Expected weights in .*x.pt, but there is no such file"):
        load_weights(nn.Linear(2, 2), tmp_path / "x.pt")


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.", "model."])
@pytest.mark.parametrize("key", [None, "state_dict", "model", "net"])
@pytest.mark.parametrize("suffix", [".pt", ".pth.tar", ".ckpt"])
def test_state_dicts_of_others(prefix, key, suffix, tmp_path):
    source, target = nn.Linear(3, 2), nn.Linear(3, 2)
    state = {prefix + name: value for name, value in source.state_dict().items()}
    path = tmp_path / f"x{suffix}"
    optimizer = {"state": {0: {"momentum_buffer": torch.zeros(2, 3)}}, "param_groups": []}
    torch.save(state if key is None else {key: state, "epoch": 3, "best": 0.9, "optimizer": optimizer}, path)
    load_weights(target, path)
    assert_same_weights(target, source)


def test_weights_that_torch_averaged(tmp_path):
    source, target = nn.Linear(3, 2), nn.Linear(3, 2)
    torch.save(torch.optim.swa_utils.AveragedModel(source).state_dict(), tmp_path / "x.pt")
    load_weights(target, tmp_path / "x.pt")
    assert_same_weights(target, source)


def test_of_several_sets_of_weights_none_is_chosen(tmp_path):
    last, average, other = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(4, 2)
    torch.save({"model": last.state_dict(), "ema": {"model": average.state_dict()}}, tmp_path / "x.pt")
    with pytest.raises(ValueError, match=r"several that fit the model, under \['model'\], \['ema'\]\['model'\]. Save"):
        load_weights(nn.Linear(3, 2), tmp_path / "x.pt")
    torch.save({"teacher": other.state_dict(), "student": last.state_dict()}, tmp_path / "x.pt")
    target = nn.Linear(3, 2)
    load_weights(target, tmp_path / "x.pt")  # only one of them fits
    assert_same_weights(target, last)


def test_safetensors_of_others(tmp_path):
    source, target = nn.Linear(3, 2), nn.Linear(3, 2)
    save_file({f"module.{name}": value for name, value in source.state_dict().items()}, tmp_path / "x.safetensors")
    load_weights(target, tmp_path / "x.safetensors")
    assert_same_weights(target, source)


def test_what_does_not_fit_is_said_in_one_sentence_and_changes_nothing(tmp_path):
    target = nn.Linear(3, 2)
    before = {name: value.clone() for name, value in target.state_dict().items()}
    extra = {f"extra{index}": torch.zeros(1) for index in range(5)}
    torch.save({"weight": torch.zeros(4, 3), **extra}, tmp_path / "x.pt")
    sentence = (
        r"x.pt do not fit the model: 1 missing \(bias\); 5 unexpected \(extra0, extra1, extra2 and 2 more\); "
        r"1 of another shape \(weight \(4, 3\) instead of \(2, 3\)\)\."
    )
    with pytest.raises(ValueError, match=sentence):
        load_weights(target, tmp_path / "x.pt")
    assert all(torch.equal(before[name], value) for name, value in target.state_dict().items())


def test_a_name_with_and_without_a_prefix_is_refused(tmp_path):
    state = nn.Linear(3, 2).state_dict()
    torch.save({**state, **{f"module.{name}": value for name, value in state.items()}}, tmp_path / "x.pt")
    with pytest.raises(ValueError, match=r"2 unexpected \(module.weight, module.bias\)"):
        load_weights(nn.Linear(3, 2), tmp_path / "x.pt")


@pytest.mark.parametrize("legacy", [False, True])
def test_code_in_a_file_is_refused_and_not_run(tmp_path, legacy):
    witness = tmp_path / "it_ran"
    state = {**nn.Linear(3, 2).state_dict(), "bomb": Bomb(witness)}
    torch.save(state, tmp_path / "x.pt", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ValueError, match=r"hold a state_dict, but torch.load with weights_only=True refuses it"):
        load_weights(nn.Linear(3, 2), tmp_path / "x.pt")
    assert not witness.exists()
    torch.load(tmp_path / "x.pt", weights_only=False)  # the bomb is live: the test could have failed
    assert witness.exists()


def test_pickled_modules_and_garbage_are_refused(tmp_path):
    model = nn.Linear(3, 2)
    path = tmp_path / "x.pt"
    torch.save(model, path)
    with pytest.raises(ValueError, match=r"it also holds torch.nn.modules.linear.Linear. Save model.state_dict"):
        load_weights(model, path)
    path.write_bytes(b"garbage")
    with pytest.raises(ValueError, match="refuses it"):
        load_weights(model, path)
    (tmp_path / "x.safetensors").write_bytes(b"garbage")
    with pytest.raises(ValueError, match="to be a safetensors file, but it cannot be read"):
        load_weights(model, tmp_path / "x.safetensors")


def test_files_of_another_kind_are_refused(tmp_path):
    model = nn.Linear(3, 2)
    (tmp_path / "x.onnx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"x.onnx to hold a state_dict, but torch.load .* refuses it\."):
        load_weights(model, tmp_path / "x.onnx")
    torch.save([1, 2], tmp_path / "x.pt")
    with pytest.raises(ValueError, match="to hold a state_dict, but got a list"):
        load_weights(model, tmp_path / "x.pt")
    torch.save({"weight": torch.zeros(2, 3), "epoch": 3}, tmp_path / "x.pt")
    with pytest.raises(ValueError, match="a state_dict of tensors, but 'epoch' is of type int"):
        load_weights(model, tmp_path / "x.pt")
