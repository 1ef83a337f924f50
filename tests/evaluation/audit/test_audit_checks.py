"""Every check can fire, and can stay silent."""

from collections.abc import Callable

import pytest
import torch
from audit_models import Angle, Case, Cut, Line, Mixing, Sine, points
from torch import nn

from pclc.attacks import PGD
from pclc.bench.zoo_models import Detached, Noisy, Optimising, Purified, Quantised, Rounded, Scaled, WithRounding
from pclc.evaluation.audit import CHECKS, Scene
from pclc.evaluation.audit.breaks import mend
from pclc.evaluation.audit.finding import check_table, run_check
from pclc.evaluation.audit.subject import look_at_model
from pclc.evaluation.audit.trace import trace
from pclc.execution import Execution

EPS = 0.1
# A peak at 0.3 that keeps small steps, and what is wanted behind it, where one long step lands.
PEAK = Line(lambda u: -1 - (u - 0.3).abs() + 20 * (u - 0.8).clamp(min=0))
NEVER = Line(lambda u: -1 - u.abs())
NARROW = Line(lambda u: 0.05 - (u - 0.3).abs())


def of(model: nn.Module, case: Case, **settings) -> Scene:
    right = model.eval()(case.x).argmax(1) == case.y if not settings.pop("all", False) else slice(None)
    scene = Scene.of(model, case.x[right][:64], case.y[right][:64], "Linf", settings.pop("eps", EPS))
    for name, value in settings.items():
        setattr(scene, name, value)
    return scene


def on_a_line(model: nn.Module) -> Scene:
    return Scene.of(model.eval(), *points(), "Linf", EPS)


def in_train_mode(case: Case) -> Scene:
    scene = Scene.of(nn.Sequential(case.model, nn.Identity()).train(), case.x[:8], case.y[:8], "Linf", EPS)
    case.model.eval()
    return scene


def nearly_equal(case: Case) -> Scene:
    """A difference of one level, which half a level on each side turns and a stored image cannot."""
    x = torch.tensor([[101 / 255, 100 / 255]]).repeat(64, 1)
    return Scene.of(nn.Identity(), x, torch.zeros(64, dtype=torch.int64), "Linf", 0.9 / 255)


def fast_features(case: Case) -> Scene:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), Sine(), nn.Linear(64, 10)).eval()
    return Scene.of(model, case.x[:64], model(case.x[:64]).argmax(1), "Linf", EPS)


def around(case: Case) -> Scene:
    """The way to what is wanted is longer than forty steps."""
    return Scene.of(Angle(), torch.full((256, 2), 0.5), torch.zeros(256, dtype=torch.int64), "Linf", EPS)


def survivors_that_fall(case: Case) -> Scene:
    return of(case.model, case, survivors=(case.x[:64], case.y[:64]), eps=0.3)


FIRES: dict[str, Callable[[Case], Scene]] = {
    "eval mode": in_train_mode,
    "same output every time": lambda case: of(Noisy(case.model), case),
    "each image by itself": lambda case: of(Mixing(case.model), case),
    "logits, not probabilities": lambda case: of(nn.Sequential(case.model, nn.Softmax(1)), case),
    "gradient graph": lambda case: of(Quantised(case.model), case),
    "input range": lambda case: of(case.model, Case(case.model, case.x / 255, case.y), all=True),
    "no optimisation inside forward": lambda case: of(Optimising(case.model), case),
    "vanishing gradients": lambda case: of(Scaled(case.model, 1e4), case),
    "gradient against finite differences": lambda case: of(Detached(case.model), case),
    "some objective has a gradient": lambda case: Scene.of(Cut(), torch.eye(3), torch.arange(3), "Linf", EPS),
    "masking 1: iterative attacks are stronger": lambda case: on_a_line(PEAK),
    "masking 2: white-box attacks are stronger": lambda case: of(Scaled(case.model, 1e4), case, eps=0.15),
    "masking 3: accuracy falls with eps": lambda case: on_a_line(NEVER),
    "eps 0.5 leaves at most chance": lambda case: of(Scaled(case.model, 1e4), case),
    "twice the steps and restarts gain nothing": around,
    "loss at rest at the end": around,
    "success on the path counts": lambda case: on_a_line(NARROW),
    "8-bit rounding": nearly_equal,
    "an unbounded attack succeeds": lambda case: on_a_line(NEVER),
    "planted examples are found": fast_features,
    "black-box attacks find nothing more": lambda case: of(case.model, case, gained_blind=(20, 60)),
    "the audit has converged": survivors_that_fall,
    "EOT has converged": lambda case: of(case.model, case, gained_draws=0.03),
}


@pytest.fixture(scope="module")
def honest(trained: nn.Module) -> Scene:
    """A plain network, audited at an eps that it is open about, with the figures of a settled audit."""
    from pclc import load_dataset

    test = load_dataset("digits", "test")
    x, y = test.images[:120].float() / 255, test.labels[:120]
    scene = of(trained, Case(trained, x, y), gained_blind=(0, 60), gained_draws=0.0)
    left = scene.right_after(PGD(EPS, EPS / 20, 100, restarts=3, objective="margin"))
    scene.survivors = scene.x[left], scene.y[left]
    return scene


@pytest.mark.parametrize("name", CHECKS)
def test_it_can_fire(name: str, case: Case) -> None:
    found = run_check(CHECKS[name], FIRES[name](case))
    assert found.state == "fired", found
    assert found.measured
    assert found.next_step


@pytest.mark.parametrize("name", CHECKS)
def test_it_can_stay_silent(name: str, honest: Scene) -> None:
    assert run_check(CHECKS[name], honest).state == "silent", run_check(CHECKS[name], honest)


def test_ties_in_flat_areas_are_no_shattered_gradient() -> None:
    model = nn.Sequential(nn.MaxPool2d(4), nn.Flatten(), nn.Linear(1, 2))  # of a black image all pixels tie
    model[2].weight.data, model[2].bias.data = torch.tensor([[1.0], [-1.0]]), torch.tensor([1.0, 0.0])
    black, first = torch.zeros(64, 1, 4, 4), torch.zeros(64, dtype=torch.int64)
    for norm in ("Linf", "L2"):
        found = run_check(CHECKS["gradient against finite differences"], Scene.of(model, black, first, norm, EPS))
        assert found.state == "silent", found


def test_gradients_that_nobody_needs_do_not_vanish() -> None:
    model = nn.Linear(1, 3)  # class 0 is the last: the DLR loss is 1 everywhere
    model.weight.data, model.bias.data = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0.0, 5.0, 5.0])
    attack = PGD(EPS, EPS / 4, 8, stop="never")
    fooled = trace(model, torch.full((4, 1), 0.5), torch.zeros(4, dtype=torch.int64), attack, 0, Execution())
    assert fooled.vanished["dlr"] == 0
    model.weight.data.zero_()
    model.bias.data[2] = 6.0
    right = trace(model, torch.full((4, 1), 0.5), torch.full((4,), 2), attack, 0, Execution())
    assert right.vanished["dlr"] == right.vanished["margin"] == 1


def test_breaks_are_judged_by_all_images_however_few_make_a_batch() -> None:
    """With batches of four it seemed, by the first four alone, that the gradient gets through a saturated softmax."""
    linear = nn.Linear(2, 2)
    linear.weight.data, linear.bias.data = 1e3 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), torch.zeros(2)
    x, y = torch.tensor([[0.9, 0.1]]).repeat(64, 1), torch.zeros(64, dtype=torch.int64)
    x[:4] = torch.tensor([0.5001, 0.5])
    model = nn.Sequential(linear, nn.Softmax(1)).eval()
    (found,) = look_at_model(model, x, y, Execution(device="cpu")).breaks
    assert str(found).startswith("module '1'")
    for size in (4, 24):
        assert look_at_model(model, x, y, Execution(device="cpu", batch_size=size)).breaks == (found,)


def test_a_transfer_stands_in_for_square_where_there_is_a_twin(case: Case) -> None:
    check = CHECKS["masking 2: white-box attacks are stronger"]
    assert "only transfer turns" in run_check(check, of(case.model, case, twin=case.model)).measured
    assert "only Square turns" in run_check(check, of(case.model, case)).measured


@pytest.mark.parametrize(
    ("name", "scene"),
    [
        ("eps 0.5 leaves at most chance", lambda case: Scene.of(case.model, case.x[:8], case.y[:8], "L2", 0.5)),
        ("8-bit rounding", lambda case: Scene.of(case.model, case.x[:8] * 0.999, case.y[:8], "Linf", EPS)),
        ("8-bit rounding", lambda case: of(Noisy(case.model, 0.5), case)),
        ("the audit has converged", lambda case: of(case.model, case)),
        ("black-box attacks find nothing more", lambda case: of(case.model, case)),
        ("EOT has converged", lambda case: of(case.model, case)),
        ("planted examples are found", lambda case: of(Noisy(case.model), case)),
        ("each image by itself", lambda case: of(Noisy(case.model), case)),
        ("an unbounded attack succeeds", lambda case: of(Noisy(case.model), case)),
    ],
)
def test_it_says_where_it_does_not_apply(name: str, scene: Callable[[Case], Scene], case: Case) -> None:
    assert run_check(CHECKS[name], scene(case)).state == "not applicable"


class Lighter(Purified):
    """Purifies an image that its own code has changed, all of it without gradients."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            clean = self.purify(0.9 * x)
        return self.plain(clean)


def test_the_gradient_is_mended_where_the_identity_fits(case: Case) -> None:
    for wrapper, place in (
        (Quantised, "the model's own forward"),
        (Detached, "own forward"),
        (WithRounding, "'0'"),
        (lambda plain: Purified(plain, nn.Linear(64, 20), nn.Linear(20, 64)), "'purify'"),
        (lambda plain: Lighter(plain, nn.Linear(64, 20), nn.Linear(20, 64)), "own forward"),
        (Rounded, "own forward"),
    ):
        scene = of(wrapper(case.model), case)
        assert scene.subject.differentiable
        assert place in run_check(CHECKS["gradient graph"], scene).measured
        assert run_check(CHECKS["some objective has a gradient"], scene).state == "silent"
        assert torch.equal(scene.subject.craft(scene.x), scene.subject.model(scene.x))  # the values are untouched


class NoNumber(torch.autograd.Function):
    """What it is given; its derivative is NaN, also of what nobody asks for."""

    @staticmethod
    def forward(ctx, h: torch.Tensor) -> torch.Tensor:
        return h.clone()

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        return torch.nan * grad


class Between(nn.Module):
    """Linear but for what its own code does to features on their way from one layer to the next, flattened there."""

    def __init__(self, spoil: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Linear(64, 10)
        self.spoil = spoil

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.spoil(self.middle(self.spoil(self.first(x)))).flatten(1))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda h: (4 * h).round() / 4,
        lambda h: h.detach(),
        NoNumber.apply,
    ],
)
def test_features_that_lose_their_gradient_between_modules_get_that_of_the_module_before(spoil, case: Case) -> None:
    torch.manual_seed(0)
    model, x = Between(spoil), case.x.clone().requires_grad_()
    mended, breaks = mend(model, case.x, case.y)
    assert {(place.at, place.source) for place in breaks} == {("last", ("middle", 1)), ("middle", ("first", 1))}
    (found,) = torch.autograd.grad(mended(x)[:, 0].sum(), x)
    assert torch.equal(mended(x), model(x))
    model.spoil = nn.Identity()
    (expected,) = torch.autograd.grad(model(x)[:, 0].sum(), x)
    torch.testing.assert_close(found, expected)


class Inner(nn.Module):
    """Follows a gradient of its own, through a layer whose output is nearest to what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.same = nn.Identity()

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            z = h.detach().requires_grad_()
            (grad,) = torch.autograd.grad(self.same(z).square().sum(), z)
        return (z - 0.01 * grad).detach()


def test_what_a_module_does_inside_does_not_stand_in_for_what_enters_it(case: Case) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.last = nn.Linear(64, 20), Inner(), nn.Linear(20, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.last(self.inner((self.first(x.flatten(1)) + 3).detach()))
            return out

    model = Model()
    mended, breaks = mend(model, case.x, case.y)
    assert (breaks[0].at, breaks[0].source) == ("inner", ("first", 1))
    assert torch.autograd.grad(mended(case.x.clone().requires_grad_()).sum(), model.first.weight)[0].any()


def test_the_level_is_shared_by_all_checks(honest: Scene) -> None:
    assert honest.level * len(CHECKS) == pytest.approx(0.05)


def test_the_table_names_every_check() -> None:
    table = check_table()
    assert all(f"| {name} |" in table for name in CHECKS)
    assert {line.count("|") for line in table.splitlines()} == {7}
