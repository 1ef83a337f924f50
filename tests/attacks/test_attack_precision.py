"""Whether an example is fooled is decided by an exact forward pass, whatever crafting runs in."""

import pytest
import torch
from attack_zoo import SmallNet, digits, examples

from pclc import create_model
from pclc.attacks import BIM, FAB, PGD, CarliniWagner, Square
from pclc.attacks.crafting import Crafting
from pclc.attacks.decide import is_fooled
from pclc.attacks.frozen import frozen
from pclc.attacks.gradients import fp16_gradient, input_gradient
from pclc.attacks.objectives import get_objective
from pclc.attacks.victim import Victim
from pclc.execution import Execution, layers, made_ready, ready

Y = torch.tensor([0, 0, 0])
EXACT = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])  # only the first is fooled
FAST = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])  # a fast pass says the second is, too


def test_what_a_fast_pass_nominates_an_exact_pass_decides():
    asked = []

    def model(x):
        asked.append(x.flatten().tolist())
        return EXACT[x.flatten().long()]

    victim = Victim(model, Execution(device="cpu", precision="bf16"))
    x = torch.arange(3.0)[:, None]
    assert victim.confirm(FAST.bfloat16(), x, Y).tolist() == [True, False, False]
    assert asked == [[0, 1]], "only what was nominated"
    assert victim.cost.forwards == 2


def test_exact_logits_decide_by_themselves():
    victim = Victim(None, Execution(device="cpu", precision="fp32"))
    x = torch.zeros(3, 1)
    assert victim.confirm(FAST, x, Y).tolist() == [True, True, False]
    assert victim.confirm(FAST, x, Y, targeted=True).tolist() == [False, False, True]
    assert victim.cost.forwards == 0


class Tie(torch.nn.Module):
    """Logits whose difference is lost in float32: 1 + x - 1 is 0 for small x, and argmax takes the first."""

    def __init__(self):
        super().__init__()
        self.one = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return torch.stack([self.one - self.one + 1 + 0 * x[:, 0], self.one + x[:, 0]], dim=1)


def test_near_ties_are_decided_in_float64():
    x = torch.tensor([[1e-9], [-1e-9], [0.5]])
    assert Tie()(x).argmax(1).tolist() == [0, 0, 1], "float32 sees no difference"
    assert is_fooled(Tie(), x, Y).tolist() == [True, False, True]
    assert is_fooled(lambda x: Tie()(x), x, Y).tolist() == [False, False, True], "a function has no twin in float64"
    victim = Victim(Tie(), Execution(device="cpu", precision="fp32"))
    logits = victim.exact_logits(x)
    assert victim.confirm(logits, x, Y).tolist() == [True, False, True], "also while crafting"


class Rounded(Tie):
    """Rounded twice, x = 6.5e-8 is two steps of float32 above 1, and beyond 1.6e-7, which is one."""

    def forward(self, x):
        return torch.stack([self.one + 1.6e-7 + 0 * x[:, 0], self.one + x[:, 0] + x[:, 0]], dim=1)


def test_a_difference_that_is_rounding_is_a_near_tie():
    x = torch.tensor([[6.5e-8]])
    assert Rounded()(x).argmax(1) == 1
    assert not is_fooled(Rounded(), x, Y[:1])


def test_a_class_that_is_masked_makes_no_near_ties():
    class Masked(torch.nn.Module):
        def forward(self, x):
            return torch.cat([x, torch.full_like(x[:, :1], -torch.inf)], 1)

    x = torch.tensor([[0.1, 0.9], [0.9, 0.1]])
    victim = Victim(Masked(), Execution(device="cpu", precision="fp32"))
    assert victim.is_fooled(x, Y[:2]).tolist() == [True, False]
    assert victim.cost.forwards == len(x), "each was asked once"


def test_near_ties_are_decided_in_batches():
    asked = []

    class Constant(Tie):
        def forward(self, x):
            asked.append(len(x))
            return super().forward(0 * x)

    is_fooled(Constant(), torch.rand(20, 1), torch.zeros(20, dtype=torch.int64), execution=Execution(batch_size=4))
    assert max(asked) == 4
    assert sum(asked) == 2 * 20


def test_a_model_that_cannot_be_copied_is_decided_in_float32():
    class Stubborn(Tie):
        def __deepcopy__(self, memo):
            raise TypeError("no copies")

    assert is_fooled(Stubborn(), torch.tensor([[1e-9], [0.5]]), Y[:2]).tolist() == [False, True]


def test_bf16_crafting_reaches_what_float32_reaches():
    """On the CPU here, on masked and robust models on the GPU."""
    model, x, y = digits()
    attack = PGD(eps=0.1, alpha=0.02, steps=10)
    counts = [
        attack.run(model, x, y, execution=Execution(device="cpu", precision=precision)).success.sum().item()
        for precision in ("fp32", "bf16")
    ]
    assert 20 < counts[0] < len(x)
    assert abs(counts[0] - counts[1]) <= 2


@pytest.mark.parametrize("attack", [BIM(eps=0.1, alpha=0.02, steps=8), CarliniWagner(steps=25, search_steps=3)])
def test_autocast_does_not_decide(attack):
    model = SmallNet().eval()
    x, y = examples(model, 40, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = attack.run(model, x, y)
    assert result.x_adv.dtype == torch.float32
    assert torch.equal(result.success, model(result.x_adv).argmax(1) != y)
    assert result.success.sum() > 2
    if isinstance(attack, CarliniWagner):  # it returns x where nothing fools, and nothing else that does not
        assert torch.equal(result.x_adv[~result.success], x[~result.success])


@pytest.mark.cuda
def test_tf32_does_not_decide():
    model = SmallNet().eval().cuda()
    x, y = (tensor.cuda() for tensor in examples(SmallNet().eval(), 40, dtype=torch.float32))
    result = BIM(eps=0.1, alpha=0.02, steps=8).run(model, x, y)
    exact = model.double()(result.x_adv.double())
    clear = exact.topk(2, dim=1).values.diff(dim=1).abs().squeeze(1) > 1e-4
    assert torch.equal(result.success[clear], (exact.argmax(1) != y)[clear])


class LayerByLayer(torch.nn.Module):
    """Uses the layers of a plain Sequential one by one, so that a BatchNorm must not be folded into what is before."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4))
        torch.nn.init.constant_(self.layers[1].bias, 2.0)

    def forward(self, x):
        before = self.layers[0](x)
        return before.mean((2, 3)) - self.layers[1](before).mean((2, 3)).relu()


def test_crafting_is_on_the_model_itself_where_made_ready_it_would_be_another():
    torch.manual_seed(0)
    model, x, y = LayerByLayer().eval(), torch.rand(20, 1, 6, 6), torch.zeros(20, dtype=torch.int64)
    execution = Execution(device="cpu", precision="tf32")
    assert not torch.allclose(made_ready(model, execution)(x), model(x), atol=0.1), "it would be"
    with frozen(model), Victim(model, execution) as victim:
        torch.testing.assert_close(victim.logits(x), model(x))
        assert victim.cost.forwards == len(x), "the comparison is no query of an attack"
    with frozen(model), Victim(model, execution) as victim:
        slope = victim.gradient(get_objective("margin"), x, y)
        torch.testing.assert_close(slope.logits, model(x))


def test_crafting_is_on_the_model_made_ready_where_it_is_the_same():
    model = create_model("resnet56").eval()
    with frozen(model), Victim(model, Execution(device="cpu", precision="bf16")) as victim:
        victim.logits(torch.rand(2, 3, 32, 32))
        assert victim.crafting.fast is victim.crafting.ready
        assert victim.crafting.fast is not model


class Writes(torch.nn.Module):
    """Writes what its last linear layer gives into rows of another tensor, which has to be of the same type."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        features = self.first(x)
        some = features[:, 0] > 0
        return features.index_put((some,), self.last(features[some]))


def test_crafting_is_on_the_model_itself_where_autocast_does_not_suit_the_other():
    torch.manual_seed(0)
    model, x = Writes().eval(), torch.rand(20, 6)
    y = model(x).argmax(1)
    result = BIM(eps=0.3, alpha=0.1, steps=3).run(model, x, y, execution=Execution(device="cpu", precision="bf16"))
    assert result.success.any()


class Large(torch.nn.Module):
    """Activations beyond the range of fp16, and logits that are not."""

    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(64, 4)

    def forward(self, x):
        return self.head((1e6 * self.body(x)).flatten(1) / 1e6)


class AnotherLast(Large):
    """Logits that come out of no linear layer."""

    def forward(self, x):
        return self.body(x).mean((2, 3))


class Scaled(Large):
    """Logits far beyond the range of fp16, and activations within."""

    def forward(self, x):
        return 1e6 * self.head(self.body(x).flatten(1))


class TwoHeads(Large):
    """Logits of two linear layers, of which one stays in float32."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 2)
        self.head = torch.nn.Linear(64, 2)

    def forward(self, x):
        features = self.body(x).flatten(1)
        return torch.cat([self.first(features), self.head(features)], 1)


class Steep(Large):
    """Features of dark images that are far smaller than those of bright ones, and too small for fp16."""

    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Conv2d(1, 4, 3, bias=False), torch.nn.Linear(64, 4, bias=False)

    def forward(self, x):
        squared = self.body(x).square()
        return self.head(squared.square().flatten(1))


class Shifted(Steep):
    """Next to what all logits have in common those are small that tell the classes apart."""

    def forward(self, x):
        return 1e6 * super().forward(x) + 1


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(Large, False), (AnotherLast, False), (Scaled, True), (TwoHeads, False), (Steep, False), (Shifted, False)],
)
def test_fp16_is_used_where_it_is_enough(kind, expected):
    torch.manual_seed(0)
    model, x = kind().eval(), torch.rand(20, 1, 6, 6) * torch.tensor([0.02, 1]).repeat(10)[:, None, None, None]
    with frozen(model), Victim(model, Execution(device="cpu", precision="tf32")) as victim:
        assert ("logits" in victim.crafting.what_fp16_is_enough_for(x)) is expected


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["vgg13", "resnet56", "preact_resnet18"])
@pytest.mark.parametrize("compiled", [None, True])
def test_passes_are_in_fp16_and_nearly_as_exact_as_in_tf32(name, compiled):
    torch.manual_seed(0)
    model, x = create_model(name).train(), torch.rand(200, 3, 32, 32)
    with torch.no_grad():
        model(x)  # statistics of BatchNorm
    model, x = model.eval().cuda(), x.cuda()
    y = torch.zeros(200, dtype=torch.int64, device="cuda")
    exact, _, exact_grad = input_gradient(model.double(), get_objective("margin"), x.double(), y)
    model.float()
    fast, tf32 = Execution(compile=compiled).for_attacks(x.device), Execution(precision="tf32", compile=compiled)
    with frozen(model), Victim(model, fast) as victim, Victim(model, tf32.for_attacks(x.device)) as other:
        other.crafting._has_chosen, other.crafting.fast = True, other.crafting.ready
        for _ in range(4):  # eager, then recorded, then replayed
            half = victim.logits(x)
            slope, usual = (each.gradient(get_objective("margin"), x, y) for each in (victim, other))
        assert victim.crafting.in_fp16 == {"logits", "gradients"}
    for found in (half, slope.logits):  # layers that are not fused round twice or three times
        assert 0 < (found - exact).abs().mean() < 3 * (usual.logits - exact).abs().mean()
        assert found.dtype == torch.float32
    errors = [(each.grad - exact_grad).norm() for each in (slope, usual)]
    assert 0 < errors[0] < 3 * errors[1]


class Striped(torch.nn.Module):
    """Beyond the range of fp16 where neighbours differ, as they do in no plain image; its boundary is elsewhere."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(2, 2, bias=False)
        self.head.weight.data = torch.tensor([[0.7, 1e-9], [-0.7, -1e-9]])
        self.detector = torch.nn.Conv2d(1, 1, (1, 2), bias=False)
        self.detector.weight.data = torch.tensor([[[[6e4, -6e4]]]])

    def forward(self, x):
        stripes = (100 * self.detector(x)).abs().mean((1, 2, 3))
        return self.head(torch.stack([x.mean((1, 2, 3)).to(stripes.dtype) - 0.5, stripes], 1))


def plain_and_striped(device="cpu"):
    """Images of one grey each, of class 0, and the same with stripes."""
    x = 0.55 + torch.linspace(0, 0.01, 20, device=device)[:, None, None, None].expand(-1, 1, 8, 8)
    stripes = x.clone()
    stripes[..., ::2] += 0.2
    return x, stripes, torch.zeros(20, dtype=torch.int64, device=device)


def in_fp16(monkeypatch):
    """Have CPUs do what CUDA does."""
    choose = Crafting.choose

    def chosen(crafting, x):
        fresh = not crafting._has_chosen
        choose(crafting, x)
        if fresh:
            crafting.in_fp16 = crafting.what_fp16_is_enough_for(x)
            assert crafting.in_fp16

    monkeypatch.setattr(Crafting, "choose", chosen)


def test_fp16_is_left_when_it_overflows(monkeypatch):
    in_fp16(monkeypatch)
    model, (x, stripes, y) = Striped().eval(), plain_and_striped()
    with frozen(model), Victim(model, Execution(device="cpu", precision="tf32")) as victim:
        assert victim.logits(x).isfinite().all()
        assert victim.logits(stripes).isnan().any()
        assert not victim.is_fooled(stripes, y).any()
        torch.testing.assert_close(victim.logits(stripes), model(stripes))


def test_fp16_is_left_when_it_overflows_and_nothing_is_decided(monkeypatch):
    """As in SPSA, which asks beside the image, and takes what is no number for a slope of zero."""
    in_fp16(monkeypatch)
    model, (x, stripes, _) = Striped().eval(), plain_and_striped()
    with frozen(model), Victim(model, Execution(device="cpu", precision="tf32")) as victim:
        assert victim.logits(x).isfinite().all()
        assert victim.logits(stripes).isnan().any()
        for _ in range(7):
            logits = victim.logits(stripes)
        torch.testing.assert_close(logits, model(stripes))
        assert victim.cost.forwards == 9 * len(x), "a pass that is made again is one query"


@pytest.mark.parametrize("stop", ["success", "never"])
@pytest.mark.parametrize("targeted", [False, True])
def test_square_is_as_strong_where_fp16_overflows(monkeypatch, stop, targeted):
    """What is no number looks like success, but not like that of a class that is to be reached."""
    model, (x, _, y) = Striped().eval(), plain_and_striped()
    attack, y = Square(eps=0.08, queries=300, stop=stop, targeted=targeted), y + targeted
    execution = Execution(device="cpu", precision="tf32")
    usual = attack.run(model, x, y, execution=execution).success
    in_fp16(monkeypatch)
    half = attack.run(model, x, y, execution=execution).success
    assert usual.all()
    assert half.sum() >= usual.sum() - 1


def test_an_overflow_that_logits_would_not_tell_has_no_room_to_happen(monkeypatch):
    """cuDNN's convolution with a ReLU makes zero of NaN: what infinity leaves behind are finite logits."""
    monkeypatch.setattr(ready, "_chooses_kernels", lambda execution: True)

    def rectified(x, weight, bias, *geometry):
        with torch.autocast("cpu", enabled=False):
            y = torch.nn.functional.conv2d(x, weight, bias, *geometry)
        return torch.where(y > 0, y, torch.zeros_like(y))

    monkeypatch.setattr(torch, "cudnn_convolution_relu", rectified)
    torch.manual_seed(0)
    convolutions = [torch.nn.Conv2d(1 if first else 32, 32, 3) for first in (True, *4 * [False])]
    model = torch.nn.Sequential(*(layer for conv in convolutions for layer in (conv, torch.nn.ReLU())))
    model.extend([torch.nn.Flatten(), torch.nn.Linear(512, 4)]).eval()
    with torch.no_grad():
        convolutions[0].weight -= convolutions[0].weight.mean((1, 2, 3), keepdim=True)  # contrast alone counts
        for layer, factor in ((convolutions[0], 2e3), (convolutions[1], 2e2), (model[-1], 2.5e-6)):
            layer.weight *= factor
    x = torch.rand(64, 1, 14, 14)
    x[:16] = 0.5 + 0.25 * (x[:16] - 0.5)
    numbers = [model[:4](images).amax().item() for images in (x[:16], x[16:])]
    assert numbers[0] < 65_504 < numbers[1]
    execution = Execution(device="cpu", precision="tf32")
    with frozen(model), torch.no_grad():
        crafting = Crafting(model, execution)
        with execution.arithmetic(half=True):
            half = crafting.ready(x)
        off = (half - model(x)).abs().amax(1)
        assert off.isfinite().all(), "nothing tells"
        assert off[16:].median() > 100 * off[:16].median()
        assert not crafting.what_fp16_is_enough_for(x)
        convolutions[1].weight /= 1e2
        model[-1].weight *= 1e2
        assert "logits" in Crafting(model, execution).what_fp16_is_enough_for(x)


class Saturates(torch.nn.Module):
    """A sigmoid, of bright images so near to 1 that fp16, which has no number between, loses its derivative."""

    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(64, 4)
        torch.nn.init.constant_(self.body.weight, 1.0)
        torch.nn.init.constant_(self.body.bias, 0.0)

    def forward(self, x):
        return self.head(self.body(x).sigmoid().flatten(1))


DARK, BRIGHT = 0.1 * torch.ones(4, 1, 6, 6), torch.ones(4, 1, 6, 6)
FIRST = torch.zeros(4, dtype=torch.int64)


def faint(logits, y):
    """As the cross-entropy of images of which a model is certain."""
    return 1e-25 * get_objective("margin")(logits, y)


def half_and_single(objective, x):
    torch.manual_seed(0)
    model = Saturates().eval()
    with Execution(device="cpu", precision="tf32").arithmetic(half=True):
        half = fp16_gradient(made_ready(model, Execution(device="cpu", precision="tf32")), objective, x, FIRST)
    return half, input_gradient(model, objective, x, FIRST)


@pytest.mark.parametrize("objective", [get_objective("margin"), faint], ids=["margin", "faint"])
def test_gradients_in_fp16_are_those_of_float32(objective):
    (*half, lost), single = half_and_single(objective, DARK)
    assert single[2].abs().amax() > 0
    assert not lost.any()
    for found, expected in zip(half, single, strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).double().norm() < 5e-3 * expected.double().norm()


def test_a_gradient_of_which_fp16_leaves_nothing_is_told():
    half, single = half_and_single(get_objective("margin"), BRIGHT)
    assert half[3].all()
    assert single[2].abs().amin() > 0

    def flat(logits, y):
        return 0 * logits[:, 0]

    assert not half_and_single(flat, BRIGHT)[0][3].any(), "there was nothing that could be lost"


@pytest.mark.parametrize("kind", [layers.FewChannels, layers.AsMatrix])
def test_a_gradient_that_is_too_large_for_fp16_is_told(monkeypatch, kind):
    monkeypatch.setattr(ready, "FewChannels", kind)  # the other is chosen on CUDA only
    torch.manual_seed(0)
    model, execution = Scaled().eval(), Execution(device="cpu", precision="tf32")
    twin = made_ready(model, execution)
    assert type(twin.body) is kind
    with frozen(model), execution.arithmetic(half=True):
        assert fp16_gradient(twin, get_objective("margin"), torch.rand(4, 1, 6, 6), FIRST)[3].all()


class Tempered(Large):
    """Logits with a temperature, which is huge where the first pixel is white."""

    def forward(self, x):
        white = x[:, 0, 0, :1].detach() > 0.99
        return self.head(self.body(x).relu().flatten(1)) / torch.where(white, 1e9, 1.0)


def test_pgd_is_as_strong_where_fp16_loses_small_entries_of_gradients(monkeypatch):
    torch.manual_seed(0)
    model, x = Tempered().eval(), 0.25 + 0.5 * torch.rand(64, 1, 6, 6)
    x[:, 0, 0, 0] = torch.where(torch.arange(64) < 20, 0.5, 1.0)  # fp16 is enough for those that are looked at
    y = model(x).argmax(1)
    attack = PGD(eps=0.05, alpha=0.01, steps=10, random_start=False, objective="margin")
    execution = Execution(device="cpu", precision="tf32")
    usual = attack.run(model, x, y, execution=execution).success
    in_fp16(monkeypatch)
    assert 10 < usual.sum() < 64
    assert torch.equal(attack.run(model, x, y, execution=execution).success, usual)


def test_fp16_is_used_for_gradients_where_it_is_enough():
    torch.manual_seed(0)
    model = Saturates().eval()
    crafting = Crafting(model, Execution(device="cpu", precision="tf32"))
    with frozen(model):
        assert crafting.what_fp16_is_enough_for(0.5 * DARK) == {"logits"}, "their negatives are bright"
        model.body.weight.data /= 10
        assert crafting.what_fp16_is_enough_for(DARK) == {"logits", "gradients"}


def test_fp16_is_left_when_it_loses_gradients(monkeypatch):
    monkeypatch.setattr(Crafting, "_gradients_survive", lambda crafting, x: True)  # the model is fine where one looks
    in_fp16(monkeypatch)
    torch.manual_seed(0)
    model, margin = Saturates().eval(), get_objective("margin")
    with frozen(model), Victim(model, Execution(device="cpu", precision="tf32")) as victim:
        assert victim.gradient(margin, DARK, FIRST).grad.any()
        seen = [victim.gradient(margin, BRIGHT, FIRST).grad.any().item() for _ in range(10)]
        assert seen[0] is False
        assert seen[-3:] == [True] * 3
        assert not victim.crafting.in_fp16
        assert victim.cost.zero_gradient_share == 0, "as in float32"
        expected = input_gradient(model, margin, BRIGHT, FIRST)[2]
        torch.testing.assert_close(victim.gradient(margin, BRIGHT, FIRST).grad, expected)


@pytest.mark.parametrize("stop", ["success", "never"])
def test_pgd_is_as_strong_where_fp16_loses_gradients(monkeypatch, stop):
    torch.manual_seed(0)
    model, x = Saturates().eval(), 1 - 0.05 * torch.rand(20, 1, 6, 6)
    y = model(x).argmax(1)
    attack = PGD(eps=0.9, alpha=0.1, steps=30, stop=stop, random_start=False)
    execution = Execution(device="cpu", precision="tf32")
    usual = attack.run(model, x, y, execution=execution)
    monkeypatch.setattr(Crafting, "_gradients_survive", lambda crafting, x: True)
    in_fp16(monkeypatch)
    half = attack.run(model, x, y, execution=execution)
    assert torch.equal(usual.success, half.success)
    torch.testing.assert_close(half.zero_gradient_share, usual.zero_gradient_share)


def test_fab_is_as_strong_where_fp16_is_enough_for_logits_only(monkeypatch):
    """It steps onto the boundary that gradients see: logits have to see the same one."""
    model, x, y = digits()
    attack, execution = FAB(eps=0.1, steps=10), Execution(device="cpu", precision="tf32")
    usual = attack.run(model, x, y, execution=execution).success
    monkeypatch.setattr(Crafting, "_gradients_survive", lambda crafting, x: False)
    in_fp16(monkeypatch)
    assert 100 < usual.sum() < len(x)
    assert attack.run(model, x, y, execution=execution).success.sum() >= usual.sum() - 2


@pytest.mark.cuda
def test_graphs_with_fp16_in_them_are_left_when_it_overflows():
    model, (x, stripes, y) = Striped().eval().cuda(), plain_and_striped("cuda")
    with frozen(model), Victim(model, Execution().for_attacks(x.device)) as victim:
        for _ in range(4):  # eager, then recorded, then replayed
            assert victim.logits(x).isfinite().all()
        assert "logits" in victim.crafting.in_fp16
        assert victim.logits(stripes).isnan().any()
        assert not victim.is_fooled(stripes, y).any()
        assert "logits" not in victim.crafting.in_fp16
        torch.testing.assert_close(victim.logits(stripes), model(stripes), rtol=1e-2, atol=1e-2)
