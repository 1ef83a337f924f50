import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pclc.models import create_model, model_names
from pclc.models.architectures.resnet56 import BasicBlock

PARAMETERS = {
    "lenet5": 61_706,
    "lenet8": 13_706,
    "cnn3": 123_222,
    "vgg13": 9_413_066,
    "vgg13_no_dropout": 9_413_066,
    "resnet56": 853_018,
    "preact_resnet18": 11_172_170,
}
FEATURES = {
    "lenet5": 84,
    "lenet8": 64,
    "cnn3": 100,
    "vgg13": 512,
    "vgg13_no_dropout": 512,
    "resnet56": 64,
    "preact_resnet18": 512,
}
BOTH_SIZES = ["vgg13", "vgg13_no_dropout", "resnet56", "preact_resnet18"]


def images_for(model, n=2):
    config = model.pclc_config
    shape = (n, config.in_channels, config.image_size, config.image_size)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_count(name):
    assert sum(parameter.numel() for parameter in create_model(name).parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_logits_are_the_head_of_the_features(name):
    model = create_model(name, num_classes=7).eval()
    x = images_for(model, n=3)
    features = model.features(x)
    assert features.shape == (3, FEATURES[name])
    logits = model(x)
    assert logits.shape == (3, 7)
    assert torch.equal(logits, model.head(features))


@pytest.mark.parametrize("name", BOTH_SIZES)
def test_64_pixels_and_200_classes_with_the_same_body(name):
    small, large = create_model(name), create_model(name, num_classes=200, image_size=64).eval()
    assert large(images_for(large)).shape == (2, 200)
    large.body.load_state_dict(small.body.state_dict())  # the weights do not depend on the image size


@pytest.mark.parametrize("name", ["lenet5", "lenet8", "cnn3"])
def test_colour_and_other_sizes_of_the_small_models(name):
    model = create_model(name, in_channels=3, image_size=32)
    assert model(images_for(model)).shape == (2, 10)


@pytest.mark.parametrize(("name", "smallest"), [("lenet5", 12), ("lenet8", 4), ("cnn3", 20)])
def test_the_smallest_image_works_and_a_smaller_one_gets_a_sentence(name, smallest):
    model = create_model(name, image_size=smallest)
    assert model(images_for(model)).shape == (2, 10)
    with pytest.raises(ValueError, match=f"`image_size` to be at least {smallest} for this model, but got"):
        create_model(name, image_size=smallest - 1)


def test_vgg13_refuses_images_below_32_pixels():
    with pytest.raises(ValueError, match="`image_size` to be at least 32 for this model, but got 28"):
        create_model("vgg13", image_size=28)


@pytest.mark.parametrize("name", PARAMETERS)
def test_compiles_without_graph_breaks(name):
    model = create_model(name).eval()
    x = images_for(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("name", PARAMETERS)
def test_channels_last_gives_the_same_logits(name):
    model = create_model(name).eval()
    x = images_for(model)
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    with torch.no_grad():
        torch.testing.assert_close(
            last(x.contiguous(memory_format=torch.channels_last)), model(x), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_is_trained(name):
    model = create_model(name)
    model(images_for(model, n=4)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_dropout_of_vgg13_acts_in_training_only_and_not_on_the_features():
    model = create_model("vgg13")
    features = torch.ones(4, 512)
    assert not torch.equal(model.head(features), model.head(features))
    model.eval()
    assert torch.equal(model.head(features), model.head(features))


def test_vgg13_without_dropout_has_the_same_weights_under_the_same_names_and_nothing_random():
    model, usual = create_model("vgg13_no_dropout"), create_model("vgg13")
    model.load_state_dict(usual.state_dict())
    features = torch.randn(4, 512, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.train().head(features), usual.eval().head(features))


def test_vgg13_has_ten_convolutions_in_five_blocks():
    widths = [layer.out_channels for layer in create_model("vgg13").body if isinstance(layer, nn.Conv2d)]
    assert widths == [64, 64, 128, 128, 256, 256, 512, 512, 512, 512]


def test_resnet56_has_56_layers():
    layers = [layer for layer in create_model("resnet56").modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(layers) == 56  # and no projection in a shortcut


def test_option_a_subsamples_and_pads_with_zeros_and_has_no_parameters():
    block = BasicBlock(2, 4, stride=2)
    x = torch.arange(2 * 5 * 5).float().view(1, 2, 5, 5)
    shortcut = block.shortcut(x)
    assert torch.equal(shortcut[:, :2], x[:, :, [0, 2, 4]][..., [0, 2, 4]])
    assert not shortcut[:, 2:].any()
    assert {name.split(".")[0] for name, _ in block.named_parameters()} == {"conv1", "bn1", "conv2", "bn2"}
    with torch.no_grad():
        block.bn2.weight.zero_()  # what is left of the block is the shortcut
    assert torch.equal(block(x), F.relu(shortcut))


def test_preact_resnet18_has_18_layers_and_a_projection_where_the_shape_changes():
    body = create_model("preact_resnet18").body
    layers = [layer for layer in body.modules() if isinstance(layer, nn.Conv2d)]
    projections = [layer for layer in layers if layer.kernel_size == (1, 1)]
    assert len(layers) - len(projections) + 1 == 18  # with the linear layer
    assert [(layer.in_channels, layer.out_channels) for layer in projections] == [(64, 128), (128, 256), (256, 512)]
    x = torch.rand(1, 3, 32, 32)
    sizes = []
    for layer in body[:9]:  # the stem and eight blocks
        x = layer(x)
        sizes.append(tuple(x.shape[1:3]))
    assert sizes == [*[(64, 32)] * 3, *[(128, 16)] * 2, *[(256, 8)] * 2, *[(512, 4)] * 2]


def test_preact_block_keeps_the_identity_clean():
    block = create_model("preact_resnet18").body[2]
    with torch.no_grad():
        block.conv2.weight.zero_()
    x = torch.randn(2, 64, 4, 4)
    assert torch.equal(block(x), x)  # negative values too: no ReLU on the way


def test_he_initialisation():
    convolution = create_model("vgg13").body[3]
    assert convolution.weight.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.03)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_wrong_shape_or_dtype_gets_a_sentence(name):
    model = create_model(name)
    x = images_for(model)
    expected = r"Expected `x` to be of shape \(N, \d, \d+, \d+\), but got"
    for wrong in (torch.cat([x, x], 1), x[:, :, 1:, 1:], x[0], x.permute(0, 2, 3, 1)):
        with pytest.raises(ValueError, match=expected):
            model(wrong)
    with pytest.raises(ValueError, match=r"floating point with values in \[0, 1\], but got torch.uint8"):
        model((x * 255).byte())


def test_these_are_all_models():
    assert set(PARAMETERS) <= set(model_names())
