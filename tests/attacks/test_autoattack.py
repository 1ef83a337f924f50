"""AutoAttack: the published components, who broke what, stopping and going on, and what it warns of."""

import cProfile
import itertools
import pstats
import warnings
from dataclasses import dataclass

import pytest
import torch
from attack_zoo import CLASSES, SmallNet, examples, linear
from torch import nn

from pclc.attacks import (
    APGD,
    EOT,
    FGSM,
    PGD,
    APGDTargeted,
    AttackWarning,
    AutoAttack,
    DynamicModelWarning,
    ProbabilityWarning,
    RandomModelWarning,
    SquareStrongerWarning,
    ZeroGradientWarning,
    parse_attack,
)
from pclc.attacks.attack import Attack
from pclc.attacks.fab import FAB
from pclc.attacks.square import Square
from pclc.attacks.suspicions import is_dynamic, is_random, shares_draws
from pclc.attacks.types import Norm
from pclc.attacks.victim import Victim
from pclc.execution import Execution

EPS = 0.06
THREE = (FGSM(EPS), APGD(EPS, steps=5), APGDTargeted(EPS, steps=5))
QUICK = AutoAttack(EPS, version="custom", attacks=THREE)


@pytest.fixture
def net():
    return SmallNet().double().eval()


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_the_standard_version_has_the_published_budgets(norm):
    assert list(AutoAttack(0.3, norm).components().items()) == [
        ("apgd-ce", APGD(0.3, steps=100, norm=norm, restarts=1, objective="ce", rho=0.75)),
        ("apgd-t", APGDTargeted(0.3, steps=100, targets=9, norm=norm, restarts=1)),
        ("fab-t", FAB(0.3, steps=100, targets=9, norm=norm)),
        ("square", Square(0.3, queries=5000, norm=norm, rescale=False)),
    ]
    assert list(AutoAttack(0.3, norm, "rand").components().items()) == [
        ("apgd-ce", EOT(APGD(0.3, steps=100, norm=norm, objective="ce"), draws=20)),
        ("apgd-dlr", EOT(APGD(0.3, steps=100, norm=norm, objective="dlr"), draws=20)),
    ]


def test_only_the_published_budgets_are_called_standard():
    assert str(AutoAttack(8 / 255)) == "autoattack(eps=8/255)"
    assert str(QUICK) == (
        'autoattack(eps=0.06, version="custom", '
        "attacks=(fgsm(eps=0.06), apgd(eps=0.06, steps=5), apgd_t(eps=0.06, steps=5),))"
    )
    assert parse_attack(str(QUICK)) == QUICK


def test_who_broke_what(net):
    x, y = examples(net, 60)
    seen = []
    result = QUICK.run(net, x, y, seed=3, progress=lambda *step: seen.append(step))
    assert torch.equal(result.success, result.broken_by >= 0)
    assert torch.equal(result.broken_by == 0, net(x).argmax(1) != y)
    assert [component.name for component in result.components] == ["clean", *map(str, THREE)]
    alone = [attack.run(net, x, y, seed=3).success for attack in THREE]
    standing = result.broken_by != 0
    for number, success in enumerate(alone, 1):
        assert torch.equal(result.broken_by == number, standing & success)
        standing = standing & ~success
        assert result.components[number].accuracy == standing.double().mean().item()
        assert result.components[number].seconds > 0
    assert len(set(result.broken_by.tolist())) >= 4, "or nothing would be tested"
    assert torch.equal(result.x_adv[~result.success], x[~result.success])
    assert torch.equal(QUICK(net, x, y, seed=3), result.x_adv)
    left = [round(component.accuracy * len(x)) for component in result.components]
    assert seen == [(component.name, done, left[done]) for done, component in enumerate(result.components)]


def test_inside_inference_mode(net):
    x, y = examples(net, 8)
    with torch.inference_mode():
        inside = QUICK.run(net, x.clone(), y)
    assert torch.equal(inside.x_adv, QUICK.run(net, x, y).x_adv)


def test_the_draw_that_fooled_does_not_decide():
    """Of a model that is random off clean images only, which no look at those can see, it is found by trying often."""

    def flips(x):
        right = (torch.rand(len(x)) > 0.2) | (x == clean[: len(x)]).flatten(1).all(1)
        return 10 * nn.functional.one_hot(torch.where(right, 0, 1), CLASSES) + 0 * x.flatten(1)[:, :CLASSES]

    clean = x = torch.rand(200, 1, 4, 4)
    y = torch.zeros(200, dtype=torch.int64)
    attack = AutoAttack(0.1, version="custom", attacks=(APGD(0.1, steps=30),))
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        result = attack.run(flips, x, y)
    assert result.success.double().mean() < 0.3
    assert (result.broken_by > 0).double().mean() < 0.5


def test_clean_accuracy_where_wrong_images_are_attacked_too(net):
    x, y = examples(net, 20)
    result = AutoAttack(EPS, version="custom", attacks=THREE, stop="never").run(net, x, y)
    assert result.components[0].accuracy == (net(x).argmax(1) == y).double().mean().item() < 1
    assert 0 not in result.broken_by


@dataclass(frozen=True, repr=False)
class Healing(Attack):
    """Brings images to where they are right."""

    eps: float = 0.2
    norm: Norm = "Linf"

    def _perturb(self, victim, x, y, seed, index):
        return x + self.eps

    def __str__(self):
        return "healing"


def test_an_image_that_is_wrong_only_as_it_is_counts_as_wrong():
    def model(x):  # class 1 beyond the middle
        return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)

    x, y = torch.tensor([[0.4], [0.6]]), torch.ones(2, dtype=torch.int64)
    attack = AutoAttack(0.2, version="custom", attacks=(Healing(),), stop="never")
    result = attack.run(model, x, y)
    assert (result.success.tolist(), result.broken_by.tolist()) == ([True, False], [0, -1])
    assert [component.accuracy for component in result.components] == [0.5, 0.5]


def test_nothing_to_attack(net):
    x, y = examples(net, 4)
    result = QUICK.run(net, x[:2], y[:2])
    assert result.broken_by.tolist() == [0, 0]
    assert [component.accuracy for component in result.components] == [0.0]
    assert QUICK.run(net, x[:0], y[:0]).components[0].name == "clean"


class Counted(nn.Module):
    """Counts the images that pass, and the passes."""

    def __init__(self, model):
        super().__init__()
        self.model, self.images, self.passes = model, 0, 0

    def forward(self, x):
        self.images += len(x)
        self.passes += 1
        return self.model(x)


@pytest.mark.parametrize("place", ["folder", "file.safetensors"])
def test_a_stopped_run_goes_on(net, tmp_path, place):
    x, y = examples(net, 40)
    index = torch.arange(40, 80)
    whole = QUICK.run(net, x, y, seed=1, index=index)

    def stop_after_two(name, done, left):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        QUICK.run(Counted(net), x, y, seed=1, index=index, state=tmp_path / place, progress=stop_after_two)
    model, seen = Counted(net), []
    result = QUICK.run(model, x, y, 1, index, state=tmp_path / place, progress=lambda name, *_: seen.append(name))
    assert seen == [str(THREE[2])]
    assert torch.equal(result.x_adv, whole.x_adv)
    assert torch.equal(result.broken_by, whole.broken_by)
    assert [(c.name, c.accuracy) for c in result.components] == [(c.name, c.accuracy) for c in whole.components]
    assert result.backwards == whole.backwards
    assert result.zero_gradient_share == whole.zero_gradient_share
    assert model.images < whole.forwards
    again = QUICK.run(Counted(net), x, y, seed=1, index=index, state=tmp_path / place)
    assert torch.equal(again.x_adv, whole.x_adv)
    assert again.components == result.components


def test_a_state_of_something_else_is_refused(net, tmp_path):
    x, y = examples(net, 12)
    QUICK.run(net, x, y, state=tmp_path)
    kept = (tmp_path / "autoattack.safetensors").read_bytes()
    other = AutoAttack(EPS, version="custom", attacks=THREE[:2])
    moved = x.clone()
    moved[5, 0, 0, 0] = 0.123
    cases = {
        "attack": lambda: other.run(net, x, y, state=tmp_path),
        "seed": lambda: QUICK.run(net, x, y, seed=1, state=tmp_path),
        "data": lambda: QUICK.run(net, moved, y, state=tmp_path),
        "model": lambda: QUICK.run(SmallNet(gain=4.0001).double(), x, y, state=tmp_path),
    }
    for name, run in cases.items():
        with pytest.raises(ValueError, match=f"`state` to be from a run with the same {name}"):
            run()
    assert (tmp_path / "autoattack.safetensors").read_bytes() == kept
    (tmp_path / "autoattack.safetensors").write_bytes(kept[:100])
    with pytest.raises(ValueError, match="`state` to be a file that AutoAttack wrote"):
        QUICK.run(net, x, y, state=tmp_path)


def test_a_state_with_a_changed_byte_is_refused(net, tmp_path):
    x, y = examples(net)
    QUICK.run(net, x, y, state=tmp_path)
    file = tmp_path / "autoattack.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"`state` to be a file that AutoAttack wrote, .* not those that were written"):
        QUICK.run(net, x, y, state=tmp_path)


class Tempered(nn.Module):
    """Has its temperature in a plain attribute."""

    def __init__(self, model, temperature):
        super().__init__()
        self.model, self.temperature = model, temperature

    def forward(self, x):
        return self.model(x) / self.temperature


class Squashed(Tempered):
    """Has the same weights, attributes and predictions, and other gradients."""

    def forward(self, x):
        return super().forward(x).tanh()


def test_a_model_is_more_than_its_weights(net, tmp_path):
    x, y = examples(net, 12)
    QUICK.run(Tempered(net, 1.0), x, y, state=tmp_path)
    again = QUICK.run(Tempered(net, 1.0), x, y, state=tmp_path)
    parallel = QUICK.run(nn.DataParallel(Tempered(net, 1.0)), x, y, state=tmp_path)
    assert torch.equal(again.x_adv, parallel.x_adv)
    for other in (Tempered(net, 2.0), Squashed(net, 1.0)):
        with pytest.raises(ValueError, match="with the same architecture"):
            QUICK.run(other, x, y, state=tmp_path)


def test_what_a_model_counts_in_a_run_does_not_make_it_another(net, tmp_path):
    x, y = examples(net, 12)
    QUICK.run(Counted(net), x, y, state=tmp_path)
    seen = []
    smaller = Execution(device="cpu", batch_size=5)  # so that there are more passes
    QUICK.run(Counted(net), x, y, execution=smaller, state=tmp_path, progress=lambda *step: seen.append(step))
    assert not seen


def test_a_function_is_known_by_its_logits(net, tmp_path):
    x, y = examples(net, 12)
    QUICK.run(lambda x: net(x), x, y, state=tmp_path)
    QUICK.run(lambda x: 1.0 * net(x), x, y, state=tmp_path)
    with pytest.raises(ValueError, match="with the same model"):
        QUICK.run(lambda x: 2 * net(x), x, y, state=tmp_path)


class Noisy(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x) + 3e-3 * torch.randn(len(x), CLASSES, dtype=x.dtype)


class Purified(nn.Module):
    """Takes a gradient step on the input before it answers."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            (grad,) = torch.autograd.grad(self.model(leaf).square().sum(), leaf)
        return self.model(x - 1e-4 * grad)


class Probabilities(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).softmax(1)


class Rounded(nn.Module):
    """No gradient gets through."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model((20 * x).round() / 20)


def categories(attack, model, x, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attack.run(model, x, y)
    assert all(warning.filename == __file__ for warning in caught), "points at the caller"
    return {warning.category for warning in caught if issubclass(warning.category, AttackWarning)}


def test_warnings(net):
    x, y = examples(net, 20)
    attacks = APGD(EPS, steps=2), Square(EPS, queries=100)
    attack = AutoAttack(EPS, version="custom", attacks=attacks)
    assert categories(attack, net, x, y) == set()
    assert RandomModelWarning in categories(attack, Noisy(net), x, y)
    assert DynamicModelWarning in categories(attack, Purified(net), x, y)
    assert ProbabilityWarning in categories(attack, Probabilities(net), x, y)
    assert categories(attack, Rounded(net), x, y) == {ZeroGradientWarning, SquareStrongerWarning}
    square = AutoAttack(EPS, version="custom", attacks=attacks[1:])
    assert categories(square, net, x, y) == set(), "Square alone is not stronger than anything"


@pytest.mark.parametrize(
    ("lead", "noise", "expected"), [(0, 0.0, False), (0, 1e-6, True), (10, 1e-6, False), (10, 1e-2, True)]
)
def test_a_model_is_random_where_predictions_or_logits_change(lead, noise, expected):
    logits = torch.tensor([1.0 + lead, 1, 1, 1])
    victim = Victim(
        lambda x: logits + noise * torch.randn(len(x), 4), Execution(device="cpu").for_attacks(torch.device("cpu"))
    )
    assert is_random(victim, torch.rand(50, 3)) == expected


def test_a_model_that_draws_one_of_two_networks_is_random():
    """Five passes go through the same one once in sixteen times."""
    torch.manual_seed(0)
    cpu = Execution(device="cpu").for_attacks(torch.device("cpu"))
    victim = Victim(lambda x: x if torch.rand(()) < 0.5 else -x, cpu)
    assert all(is_random(victim, torch.rand(50, 4)) for _ in range(100))


def test_the_version_for_random_models_is_not_told_that_they_are(net):
    x, y = examples(net, 4)

    def stop_before_the_first(name, done, left):
        raise KeyboardInterrupt

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            AutoAttack(EPS, version="rand").run(Noisy(net), x, y, progress=stop_before_the_first)
    assert not caught


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AutoAttack(EPS, attacks=THREE), '`attacks` with version="custom" and only there, but got 3 attacks'),
        (lambda: AutoAttack(EPS, version="custom"), '`attacks` with version="custom" .* but got 0 attacks'),
        (lambda: AutoAttack(0.1, version="custom", attacks=THREE), r"with eps=0\.1 .* but got fgsm\(eps=0\.06\)"),
        (lambda: AutoAttack(EPS, "L2", "custom", THREE), r'norm="L2", but got fgsm'),
        (lambda: AutoAttack(EPS, version="custom", attacks=(FGSM(EPS, targeted=True),)), "to be untargeted"),
        (lambda: AutoAttack(EPS, version="plus"), '`version` to be "standard" or "rand" or "custom", but got'),
        (lambda: AutoAttack(EPS, targeted=True), "`targeted` to be False, because AutoAttack"),
        (lambda: AutoAttack(EPS, norm="L1"), '`norm` to be "Linf" or "L2"'),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("version", ["standard", "rand"])
@pytest.mark.parametrize("stop", ["success", "never"])
def test_what_is_wrong_without_an_attack_does_not_count_as_unbroken(net, version, stop):
    """Under "rand" it did: who counted those that nothing had broken had 100 % of a model that is always wrong."""
    x, _ = examples(net, 6)
    told = []
    attack = AutoAttack(0.0, version=version, stop=stop)
    result = attack.run(net, x, (net(x).argmax(1) + 1) % 4, progress=lambda name, done, left: told.append(left))
    assert result.components[-1].accuracy == 0
    assert (result.broken_by != -1).all()
    assert not any(told[1:])


def test_what_luck_fools_when_a_run_goes_on_is_not_wrong_without_an_attack(tmp_path):
    """What an earlier run kept of a random model may fool in more of the next draws than it did."""
    x, draws, often = torch.full((6, 4), 0.5), itertools.count(), [0.4]

    def model(x):  # random off the image only
        fooled = (x != 0.5).any(1) & (next(draws) % 10 < 10 * often[0])
        return torch.where(fooled[:, None], -1, 1) * x * torch.tensor([10.0, 1.0, 2.0, 3.0])

    def stop_after_one(name, done, left):
        if done == 1:
            raise KeyboardInterrupt

    attack, y = AutoAttack(0.1, version="rand"), torch.zeros(6, dtype=torch.int64)
    with pytest.raises(KeyboardInterrupt):
        attack.run(model, x, y, state=tmp_path, progress=stop_after_one)
    often[0] = 0.9
    result = attack.run(model, x, y, state=tmp_path)
    assert not torch.equal(result.x_adv, x), "or nothing would be tested"
    assert 0 not in result.broken_by


@pytest.mark.parametrize(("version", "classes"), [("standard", 3), ("rand", 2)])
def test_too_few_classes(version, classes):
    model, x = linear(2 * torch.eye(classes), torch.zeros(classes)), torch.eye(classes)[:1]
    with pytest.raises(ValueError, match=rf'at least {classes + 1} classes .* "{version}", .* but the model has'):
        AutoAttack(0.1, version=version)(model, x, torch.tensor([0]))
    PGD(0.1, 0.05, 3)(model, x, torch.tensor([0]))


def test_a_profiler_goes_on_after_the_look_for_derivatives():
    """cProfile's object stands where `sys.getprofile` has a function otherwise."""
    model = torch.nn.Linear(3, 2)
    with cProfile.Profile() as profile:
        assert not is_dynamic(model, torch.rand(4, 3))
        torch.nn.functional.relu(torch.rand(3))
    assert any(name == "relu" for _, _, name in pstats.Stats(profile).stats)


def test_the_version_for_random_models_keeps_what_fools_in_most_draws():
    """One draw would decide by luck, and an example that was lucky in it would come back without an attack."""
    torch.manual_seed(0)
    model = nn.Linear(6, 4)
    x = torch.rand(40, 6)
    y = model(x).argmax(1)

    def noisy(x):
        return model(x) + 0.1 * torch.randn(len(x), 4)

    def expected(x_adv):
        return torch.stack([noisy(x_adv).argmax(1) == y for _ in range(300)]).double().mean().item()

    attack = AutoAttack(0.1, version="rand")
    result = attack.run(noisy, x, y)
    first = next(iter(attack.components().values()))(noisy, x, y)
    assert 0.05 < expected(first) < 0.95, "something is left to luck"
    assert expected(result.x_adv) <= expected(first) + 0.02
    assert expected(attack(noisy, x, y)) <= expected(first) + 0.02, "also where only the examples are asked for"
    assert result.components[-1].accuracy == pytest.approx(expected(result.x_adv), abs=0.05)
    assert result.components[-1].accuracy <= result.components[1].accuracy


@pytest.mark.parametrize(
    ("own", "shared", "expected"), [(1.0, 0.0, False), (0.0, 1.0, True), (1.0, 1.0, True), (1.0, 0.01, False)]
)
def test_draws_that_images_of_a_pass_share_are_noticed(own, shared, expected):
    victim = Victim(
        lambda x: x + own * torch.rand(len(x), 4) + shared * torch.rand(4),
        Execution(device="cpu").for_attacks(torch.device("cpu")),
    )
    torch.manual_seed(0)
    assert shares_draws(victim, torch.rand(50, 4)) == expected


def test_no_pass_has_more_images_than_a_batch():
    """Which is all that fits into memory."""
    net, asked = SmallNet().eval(), []

    def model(x):
        asked.append(len(x))
        return net(x)

    x, y = examples(net, dtype=torch.float32)
    AutoAttack(EPS, version="custom", attacks=(FGSM(EPS),)).run(model, x, y, execution=Execution(batch_size=3))
    assert max(asked) == 3
