"""A model made ready is the same function, gradients included, and the model stays as it was."""

import copy

import pytest
import torch
from torch import nn

from pclc import create_model
from pclc.execution import Execution, layers, leaves_nothing_to_fuse, made_ready, ready

FP32, BF16 = Execution(device="cpu"), Execution(device="cpu", precision="bf16")


def with_statistics(model):
    """The model in eval mode with BatchNorms that do something."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.running_mean, module.bias.data):
                tensor.copy_(torch.randn(tensor.shape, generator=generator))
            for tensor in (module.running_var, module.weight.data):
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    return model.eval()


def gradient(model, x):
    x = x.clone().requires_grad_()
    logits = model(x)
    weights = torch.linspace(-1, 1, logits.numel(), dtype=x.dtype).reshape(logits.shape)
    return logits.detach(), torch.autograd.grad((logits * weights).sum(), x)[0]


@pytest.mark.parametrize("execution", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", ["lenet5", "lenet8", "cnn3", "vgg13", "resnet56", "preact_resnet18"])
def test_it_is_the_same_function(name, execution):
    grey = {"lenet5": 28, "lenet8": 8, "cnn3": 28}
    model = with_statistics(create_model(name).double())
    before = copy.deepcopy(model.state_dict())
    x = torch.rand(2, 1, grey[name], grey[name]) if name in grey else torch.rand(2, 3, 32, 32)
    ready = made_ready(model, execution)
    for ours, reference in zip(gradient(ready, x.double()), gradient(model, x.double()), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-9, atol=1e-12)
    assert ready is not model
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not any(parameter.grad is not None for parameter in model.parameters())


def test_batch_norm_is_gone_from_vgg13():
    ready = made_ready(with_statistics(create_model("vgg13")), FP32)
    assert not [module for module in ready.modules() if isinstance(module, nn.BatchNorm2d)]


def test_three_channels_become_eight_for_tensor_cores_only():
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1))
    assert sorted(p.shape[1] for p in made_ready(model, BF16).parameters() if p.dim() == 4) == [3, 8]
    assert [p.shape[1] for p in made_ready(model, FP32).parameters() if p.dim() == 4] == [3]


def conv_and_norm():
    return nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)


def hooked():
    conv, norm = conv_and_norm()
    conv.register_forward_hook(lambda module, args, out: 2 * out)
    return nn.Sequential(conv, norm)


def used_twice():
    conv, norm = conv_and_norm()
    return nn.Sequential(conv, norm, conv)


def between():
    conv, norm = conv_and_norm()
    return nn.Sequential(conv, nn.ReLU(), norm)


def of_another_kind():
    class Backwards(nn.Sequential):
        def forward(self, x):
            for module in reversed(list(self)):
                x = module(x)
            return x

    return Backwards(*conv_and_norm())


def after_a_layer_of_two_places():
    (conv, norm), relu = conv_and_norm(), nn.ReLU()
    return nn.Sequential(relu, conv, relu, norm)


class Block(nn.Module):
    norms_after = {"conv": "norm", "no such": "layer"}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.norm, self.conv = conv_and_norm()[::-1]

    def forward(self, x):
        return self.norm(self.conv(x))


def of_a_subclass():
    class Other(Block):
        def forward(self, x):
            return self.norm(self.conv(x).relu())

    return Other()


UNSAFE = [hooked, used_twice, between, of_another_kind, after_a_layer_of_two_places, of_a_subclass]


@pytest.mark.parametrize("make", UNSAFE)
def test_what_is_not_safe_to_fold_stays(make):
    model = with_statistics(make()).double()
    ready = made_ready(model, FP32)
    x = torch.rand(2, 16, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(ready(x), model(x), rtol=1e-12, atol=1e-12)
    assert any(isinstance(module, nn.BatchNorm2d) for module in ready.modules())


def test_a_class_may_say_which_norm_comes_after_a_convolution():
    model = with_statistics(nn.Sequential(Block(), nn.ReLU())).double()
    ready = made_ready(model, FP32)
    x = torch.rand(2, 16, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(ready(x), model(x), rtol=1e-12, atol=1e-12)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in ready.modules())


@pytest.mark.parametrize("make", [lambda: nn.Sequential(*conv_and_norm()), Block], ids=["sequential", "block"])
def test_a_compiled_model_stays_as_it_was(make):
    """It hands on what is assigned to it, to the model that it was made of."""
    model = with_statistics(make()).double()
    kinds = [type(module) for module in model.modules()]
    compiled = torch.compile(model, backend="eager")
    ready = made_ready(compiled, FP32)
    x = torch.rand(2, 16, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(ready(x), model(x), rtol=1e-12, atol=1e-12)
    assert [type(module) for module in model.modules()] == kinds
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_an_attribute_of_that_name_may_mean_something_else():
    class Other(Block):
        norms_after = True

    model = with_statistics(Other()).double()
    x = torch.rand(2, 16, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(made_ready(model, FP32)(x), model(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "left"), [("resnet56", 0), ("preact_resnet18", 9)])
def test_batch_norm_in_blocks_is_folded_where_a_convolution_is_before_it(name, left):
    """PreAct-ResNet-18 has eight more after sums, and one before its last layer."""
    ready = made_ready(with_statistics(create_model(name)), FP32)
    assert len([module for module in ready.modules() if isinstance(module, nn.BatchNorm2d)]) == left


def test_a_model_without_convolutions_comes_back_itself():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    assert made_ready(model, FP32) is model


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(2, 4, 5, padding=2),
        nn.Conv2d(2, 4, (3, 5), padding=(0, 1)),
        nn.Conv2d(2, 4, 3, stride=2),
        nn.Conv2d(2, 4, 3, padding=4),
        nn.Conv2d(2, 4, 3, dilation=2),
        nn.Conv2d(2, 4, 3, padding="same"),
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(2, 4, 3, groups=2, bias=False),
    ],
    ids=str,
)
def test_every_kind_of_small_convolution_keeps_its_gradient(conv):
    model = nn.Sequential(conv.double())
    x = torch.rand(3, 2, 9, 11, dtype=torch.float64)
    for ours, reference in zip(gradient(made_ready(model, FP32), x), gradient(model, x), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("largest", [2**22, 0], ids=["as matrices", "too large"])
def test_a_convolution_as_a_matrix_keeps_its_gradient(largest, bias, monkeypatch):
    monkeypatch.setattr(ready, "FewChannels", layers.AsMatrix)  # chosen on CUDA only
    monkeypatch.setattr(layers, "_LARGEST_MATRIX", largest)
    model = nn.Sequential(nn.Conv2d(2, 4, (3, 5), padding=(0, 1), bias=bias), nn.ReLU(), nn.Conv2d(4, 3, 2)).double()
    twin = made_ready(model, FP32)
    for size in ((9, 11), (6, 7)):
        x = torch.rand(3, 2, *size, dtype=torch.float64)
        for ours, reference in zip(gradient(twin, x), gradient(model, x), strict=True):
            torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-12)
    assert [len(module.matrices) for module in twin if isinstance(module, layers.AsMatrix)] == [2 * (largest > 0)] * 2


def test_a_matrix_has_the_precision_of_its_products(monkeypatch):
    monkeypatch.setattr(ready, "FewChannels", layers.AsMatrix)
    model, x = create_model("lenet5").eval(), torch.rand(4, 1, 28, 28)
    twin = made_ready(model, BF16)
    for on in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            torch.testing.assert_close(twin.features(x), model.features(x))
    first = next(module for module in twin.modules() if isinstance(module, layers.AsMatrix))
    assert [dtype for _, dtype, _ in first.matrices] == [torch.float32, torch.bfloat16]
    with torch.autocast("cpu", dtype=torch.bfloat16):  # which leaves float64 alone
        double = made_ready(model.double(), BF16)
        torch.testing.assert_close(double(x.double()), model(x.double()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf], ids=str)
def test_a_gradient_that_is_no_number_stays_where_it_is(bad, monkeypatch):
    """Spread over the image it would leave nothing to follow, and an attack would be blind."""
    monkeypatch.setattr(ready, "FewChannels", layers.AsMatrix)
    model = nn.Sequential(nn.Conv2d(1, 2, 3)).eval()
    x = torch.rand(2, 1, 8, 8, requires_grad=True)
    grads = []
    for net in (model, made_ready(model, BF16)):
        y = net(x)
        given = torch.ones_like(y)
        given[0, 0, 0, 0] = bad
        grads.append(torch.autograd.grad(y, x, given)[0])
    reference, ours = grads
    seen = torch.zeros_like(reference, dtype=torch.bool)
    seen[0, 0, :3, :3] = True
    torch.testing.assert_close(ours[~seen], reference[~seen])
    assert reference[~seen].isfinite().all()
    if bad == bad:
        assert torch.equal(ours[seen].sign(), reference[seen].sign())
    else:
        assert ours[seen].isfinite().all(), "the rest of what flows there"


def test_images_of_many_sizes_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(ready, "FewChannels", layers.AsMatrix)
    model = nn.Sequential(nn.Conv2d(1, 2, 3)).eval()
    twin = made_ready(model, FP32)
    for size in (*range(5, 15), 5):
        x = torch.rand(2, 1, size, size)
        torch.testing.assert_close(twin(x), model(x))
    assert len(twin[0].matrices) == layers._MATRICES
    assert twin(torch.rand(0, 1, 5, 5)).shape == (0, 2, 3, 3), "as a model that sends each image elsewhere asks"
    all_at_once = made_ready(nn.Sequential(nn.Conv2d(1, 2, 64)).eval(), FP32)
    all_at_once(torch.rand(2, 1, 64, 64))
    assert not all_at_once[0].matrices, "a row and a column for each pixel on the way, though there are two outputs"


@pytest.mark.parametrize("execution", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("channels", [(1, 6), (3, 64), (16, 16)], ids=str)
def test_code_that_looks_at_a_convolution_finds_what_it_expects(channels, execution):
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(*channels, 3)

        def forward(self, x):
            assert isinstance(self.conv, nn.Conv2d)
            assert self.conv.weight.shape == (self.conv.out_channels, self.conv.in_channels, 3, 3)
            return self.conv(x.to(self.conv.weight.dtype))

    model = Looks()
    ready, x = made_ready(model, execution), torch.rand(2, channels[0], 6, 6)
    assert (type(ready.conv) is nn.Conv2d) == (channels[0] == 16 or (channels[0] == 3 and execution is FP32))
    torch.testing.assert_close(ready(x), model(x))


def test_the_last_layer_does_not_round_logits():
    model, x = with_statistics(create_model("lenet5")), torch.rand(64, 1, 28, 28)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = model.features(x)
        own, ready = model.head(features), made_ready(model, BF16).head(features)
    assert ready.dtype == torch.float32
    exact = copy.deepcopy(model.head).double()(features.double())
    assert 100 * (ready - exact).abs().max() < (own - exact).abs().max()
    assert made_ready(model, FP32).head is model.head, "nothing to keep"


@pytest.fixture
def as_on_cuda(monkeypatch):
    """Kernels of CUDA, done on the CPU by operations that it has."""
    monkeypatch.setattr(ready, "_chooses_kernels", lambda execution: True)

    def folded(x, weight, bias, *geometry):
        with torch.autocast("cpu", enabled=False):  # which does not know the kernel
            return nn.functional.conv2d(x, weight, bias, *geometry).relu()

    monkeypatch.setattr(torch, "cudnn_convolution_relu", folded)


@pytest.mark.parametrize(("name", "left"), [("vgg13", 0), ("preact_resnet18", 1)])
def test_a_convolution_does_the_relu_that_follows_it(name, left, as_on_cuda):
    model = with_statistics(create_model(name).double())
    x = torch.rand(2, 3, 32, 32)
    twin = made_ready(model, FP32)
    assert sum(isinstance(module, nn.ReLU) for module in twin.modules()) == left
    assert not any(isinstance(module, nn.MaxPool2d) for module in twin.modules())
    for ours, reference in zip(gradient(twin, x.double()), gradient(model, x.double()), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pool", [nn.Identity, lambda: nn.MaxPool2d(2)], ids=["alone", "pooled"])
def test_added_channels_have_no_gradient(pool, as_on_cuda):
    """Tensor cores like eight; there are three."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), pool(), nn.Conv2d(32, 32, 1)).eval()
    twin, x = made_ready(model, BF16), torch.rand(2, 3, 6, 6)
    assert isinstance(twin[0], layers.ConvReLU)
    assert "more" in twin[0]._parameters
    for ours, reference in zip(gradient(twin, x), gradient(model, x), strict=True):
        torch.testing.assert_close(ours, reference)


def rectified_and_pooled(pool):
    return nn.Sequential(nn.Conv2d(16, 8, 3, padding=1), nn.ReLU(), pool, nn.Conv2d(8, 4, 1)).eval()


@pytest.mark.parametrize("size", [(6, 8), (7, 9), (2, 3)], ids=str)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_it_does_the_pooling_after_the_relu_too(size, precision, as_on_cuda):
    """In bfloat16 many pixels tie, and a rounded image has more that do; the gradient goes to the first."""
    model = rectified_and_pooled(nn.MaxPool2d(2))
    twin, x = made_ready(model, FP32), (8 * torch.rand(3, 16, *size)).round() / 8
    assert [type(layer) for layer in twin][:3] == [layers.ConvReLUPool, nn.Identity, nn.Identity]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == torch.bfloat16):
        for ours, reference in zip(gradient(twin, x), gradient(model, x), strict=True):
            torch.testing.assert_close(ours, reference)


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(3),
        nn.MaxPool2d(2, stride=1),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.MaxPool2d(2, dilation=2),
        nn.MaxPool2d((2, 1)),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.AvgPool2d(2),
    ],
    ids=str,
)
def test_another_pooling_stays(pool, as_on_cuda):
    model = rectified_and_pooled(pool)
    twin, x = made_ready(model, FP32), torch.rand(2, 16, 9, 9)
    assert [type(layer) for layer in twin][:3] == [layers.ConvReLU, nn.Identity, type(pool)]
    for ours, reference in zip(gradient(twin, x), gradient(model, x), strict=True):
        torch.testing.assert_close(ours, reference)


def test_pooling_stays_where_something_is_between(as_on_cuda):
    pool, twice = nn.MaxPool2d(2), nn.MaxPool2d(2)
    pool.register_forward_hook(lambda module, args, out: out + 1)
    for between in ([nn.Sigmoid(), nn.MaxPool2d(2)], [pool], [twice, twice]):
        model = nn.Sequential(nn.Conv2d(16, 8, 3), nn.ReLU(), *between).eval()
        twin, x = made_ready(model, FP32), torch.rand(2, 16, 10, 10)
        torch.testing.assert_close(twin(x), model(x))
        assert [type(layer) for layer in twin][2:] == [type(layer) for layer in between]


def test_a_pooled_number_that_is_none_is_seen(as_on_cuda):
    """As where fp16 overflows."""
    model = rectified_and_pooled(nn.MaxPool2d(2))
    x = torch.rand(2, 16, 6, 6)
    x[0, 0, 0, 0] = torch.nan
    logits, grad = gradient(made_ready(model, FP32), x)
    reference, _ = gradient(model, x)
    torch.testing.assert_close(logits, reference, equal_nan=True)
    assert logits[0].isnan().any()
    assert grad[1].isfinite().all()


def test_without_triton_pooling_stays(as_on_cuda, monkeypatch):
    monkeypatch.setattr(ready, "pooling", lambda: None)
    model, x = rectified_and_pooled(nn.MaxPool2d(2)), torch.rand(2, 16, 6, 6)
    twin = made_ready(model, FP32)
    assert type(twin[2]) is nn.MaxPool2d
    torch.testing.assert_close(twin(x), model(x))


@pytest.mark.parametrize(("name", "left"), [("vgg13", True), ("preact_resnet18", False), ("lenet5", False)])
def test_a_compiler_would_find_nothing_to_fuse(name, left, as_on_cuda):
    model = with_statistics(create_model(name))
    assert not leaves_nothing_to_fuse(model)
    assert leaves_nothing_to_fuse(made_ready(model, BF16)) is left
    assert not leaves_nothing_to_fuse(nn.Linear(2, 2))


def test_under_autocast_it_has_the_dtype_of_others(as_on_cuda):
    model = nn.Sequential(nn.Conv2d(16, 16, 3, 2, 1, dilation=2, groups=4), nn.ReLU()).eval()
    x = torch.rand(2, 16, 9, 9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for ours, reference in zip(gradient(made_ready(model, FP32), x), gradient(model, x), strict=True):
            torch.testing.assert_close(ours, reference)


def hooked_relu():
    relu = nn.ReLU()
    relu.register_forward_hook(lambda module, args, out: out + 1)
    return [relu]


@pytest.mark.parametrize(
    "between",
    [
        lambda: [nn.Identity().requires_grad_(), nn.Tanh(), nn.ReLU()],
        hooked_relu,
        lambda: [nn.LeakyReLU(0.1)],
        lambda: [nn.ReLU6()],
        lambda: [nn.BatchNorm2d(16).train(), nn.ReLU()],
        lambda: [nn.BatchNorm2d(16, track_running_stats=False), nn.ReLU()],
    ],
)
def test_another_layer_between_them_or_after_it_stays(between, as_on_cuda):
    layers = between()
    model = nn.Sequential(nn.Conv2d(16, 16, 3), *layers)
    x = torch.rand(4, 16, 6, 6) - 0.5
    twin = made_ready(model, FP32)
    torch.testing.assert_close(twin(x), model(x))
    assert [type(layer) for layer in twin] == [type(layer) for layer in model]


def test_a_convolution_with_a_hook_keeps_its_relu(as_on_cuda):
    """The hook comes before it."""
    conv = nn.Conv2d(16, 16, 3)
    conv.register_forward_hook(lambda module, args, out: out - 0.1)
    model = nn.Sequential(conv, nn.ReLU()).eval()
    twin, x = made_ready(model, FP32), torch.rand(2, 16, 6, 6)
    torch.testing.assert_close(twin(x), model(x))
    assert twin is model


class StraightThrough(torch.autograd.Function):
    """ReLU with the gradient of the identity."""

    @staticmethod
    def forward(ctx, x):
        return x.relu()

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_a_layer_with_a_forward_of_its_own_stays(as_on_cuda):
    """Its values are those of others, its gradient is not."""
    model = nn.Sequential(nn.Conv2d(16, 16, 3), nn.ReLU()).eval()
    model[1].forward = StraightThrough.apply
    x = torch.rand(2, 16, 6, 6)
    for ours, reference in zip(gradient(made_ready(model, FP32), x), gradient(model, x), strict=True):
        torch.testing.assert_close(ours, reference)


def test_a_relu_in_two_places_and_one_after_padding_in_words_stay(as_on_cuda):
    relu = nn.ReLU()
    model = nn.Sequential(nn.Conv2d(16, 16, 3), relu, nn.Conv2d(16, 16, 3, padding="same"), nn.ReLU(), relu).eval()
    twin = made_ready(model, FP32)
    assert [type(layer) for layer in twin] == [type(layer) for layer in model]


def test_a_norm_in_two_places_of_one_row_stays(as_on_cuda):
    conv, norm = conv_and_norm()
    model = with_statistics(nn.Sequential(conv, norm, nn.ReLU(), nn.Conv2d(16, 16, 1), norm, nn.ReLU()))
    twin, x = made_ready(model, FP32), torch.rand(2, 16, 6, 6)
    assert [type(layer) for layer in twin] == [type(layer) for layer in model]
    torch.testing.assert_close(twin(x), model(x))
