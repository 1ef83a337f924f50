"""The audit from end to end: models whose worst case is known in closed form, and models that make trouble."""

import copy
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from audit_models import Case, Cut, Mixing, Remembering
from torch import Tensor, nn

import pclc
from pclc.attacks import AutoAttack
from pclc.attacks.victim import Victim
from pclc.bench.zoo_models import Detached, Noisy, Optimising, Scaled
from pclc.evaluation import load_witnesses, verify
from pclc.evaluation.audit.document import to_document
from pclc.evaluation.audit.ladder import MODES, Threat, ladder
from pclc.evaluation.audit.standing import Standing
from pclc.evaluation.traps import MIXED, mixing

EPS = 0.1


def data(n: int = 120, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Points whose class is their largest pixel."""
    x = torch.rand(n, classes, generator=torch.Generator().manual_seed(1))
    return x, x.argmax(1)


def linear(scale: float = 5.0, classes: int = 3) -> nn.Module:
    """Logits that are the pixels: an example falls exactly where its two largest are within 2 eps."""
    model = nn.Linear(classes, classes, bias=False)
    model.weight.data = scale * torch.eye(classes)
    return model.eval()


def safe(x: Tensor, eps: float) -> Tensor:
    top = x.topk(2, dim=1).values
    return top[:, 0] - top[:, 1] > 2 * eps


def test_an_honest_model_is_not_refuted_and_measured_exactly() -> None:
    x, y = data()
    found = pclc.audit(linear(), x, y, eps=EPS, mode="quick")
    assert found.verdict == "not refuted"
    expected = float(safe(x, EPS).float().mean())
    assert found.claimed.value == pytest.approx(expected)
    assert found.robust_accuracy.value == pytest.approx(expected)
    assert found.robust_accuracy.low < found.robust_accuracy.value < found.robust_accuracy.high
    assert found.overstatement.value == found.overstatement.bound == 0
    assert all(gradient.usable for gradient in found.gradients if gradient.objective != "dlr")
    assert not found.conditions.escalated


def test_a_saturated_model_is_refuted_by_witnesses_that_anybody_can_check(tmp_path: Path) -> None:
    x, y = data()
    model = linear(scale=1e4)
    found = pclc.audit(model, x, y, eps=EPS, mode="quick", out=tmp_path)
    assert found.verdict == "refuted"
    assert found.claimed.value > found.robust_accuracy.high
    assert found.robust_accuracy.value == pytest.approx(float(safe(x, EPS).float().mean()))
    assert len(found.witnesses) == round((1 - found.robust_accuracy.value) * len(x))
    written = load_witnesses(tmp_path / "witnesses.safetensors")
    assert verify(written, model, x, y).holds
    assert "vanishing gradients" in [finding.name for finding in found.fired]
    assert {g.objective: g.usable for g in found.gradients} | {"dlr": True} == {
        "ce": False, "margin": True, "dlr": True, "probability-margin": False,
    }  # fmt: skip
    document = json.loads((tmp_path / "audit.json").read_text())
    assert document == json.loads(json.dumps(to_document(found)))
    assert (document["verdict"], document["witnesses"]["count"]) == ("refuted", len(written))


def test_a_model_that_pgd_brings_to_nothing_is_not_refuted() -> None:
    x, y = data()
    found = pclc.audit(linear(), x, y, eps=0.6, mode="quick")
    assert (found.verdict, found.claimed.value) == ("not refuted", 0)
    assert "so no robustness is claimed" in found.reason


def test_a_clean_accuracy_near_chance_cannot_be_judged() -> None:
    x, y = data(600, classes=10)
    found = pclc.audit(linear(classes=10), x, (y + 1 + torch.arange(600) % 9) % 10, eps=EPS, mode="quick")
    assert found.verdict == "cannot judge"
    assert "near chance" in found.reason
    assert "usable gradients" not in str(found), "nobody looked"


def test_stated_claims() -> None:
    x, y = data()
    truth = float(safe(x, EPS).double().mean())
    assert pclc.audit(linear(), x, y, eps=EPS, claim=truth + 0.02, mode="quick").verdict == "not refuted"
    found = pclc.audit(linear(), x, y, eps=EPS, claim=truth + 0.2, mode="quick")
    assert (found.verdict, found.claimed) == ("refuted", truth + 0.2)
    assert found.overstatement.value == pytest.approx(1 - truth / (truth + 0.2))


def test_the_first_look_ends_an_audit_that_needs_no_more() -> None:
    x, y = data(1200)
    refuted = pclc.audit(linear(1e4), x, y, eps=EPS, mode="quick")
    assert (refuted.verdict, refuted.clean.n, refuted.conditions.given) == ("refuted", 256, 1200)
    assert refuted.overstatement.confidence == pytest.approx(0.99)
    assert refuted.witnesses.index.max() >= 256  # drawn at random, not the first ones
    honest = pclc.audit(linear(), x, y, eps=EPS, mode="quick")
    assert (honest.verdict, honest.clean.n) == ("not refuted", 1200)
    assert honest.overstatement.confidence == pytest.approx(0.96)
    assert honest.robust_accuracy.value == pytest.approx(float(safe(x, EPS).float().mean()))


def test_checks_have_examples_where_the_first_look_has_none_that_is_right() -> None:
    x, y = data(1024)
    model = nn.Linear(3, 1000)
    model.weight.data, model.bias.data = 5 * torch.eye(1000, 3), -9 * (torch.arange(1000) > 2).float()
    wrong = torch.randperm(1024, generator=torch.Generator().manual_seed(0))[:-4]  # all but the audit's last
    y[wrong] = (y[wrong] + 1) % 3  # as of labels in another order
    found = pclc.audit(model, x, y, eps=EPS, claim=0.5, mode="quick")
    assert (found.verdict, found.clean.n, found.clean.value) == ("refuted", 256, 0)
    assert {f.name: f.measured for f in found.checks}["an unbounded attack succeeds"] == "0 of 4 are left"


def test_no_row_is_attacked_after_it_fell() -> None:
    x, y = data()
    found = pclc.audit(linear(1e4), x, y, eps=EPS, claim=0.1, mode="quick")
    standing = len(x)
    for step in found.steps:
        assert step.tried == standing, step
        standing -= step.broke
    assert standing == round(found.robust_accuracy.value * len(x))


def test_only_what_is_inside_and_fools_counts() -> None:
    x, y = data(30)
    standing = Standing(linear(), x, y, torch.arange(30), "Linf", EPS, 0, pclc.Execution(device="cpu"))
    turned = x.roll(1, 1)  # of another class, and far away
    far, _ = standing.fooling(torch.arange(30), turned)
    assert len(far) == int(((turned - x).abs().amax(1) <= EPS).sum())
    near = x + EPS * (torch.nn.functional.one_hot(x.topk(2).indices[:, 1], 3) - torch.nn.functional.one_hot(y, 3))
    rows, x_adv = standing.fooling(torch.arange(30), near.clamp(0, 1))
    assert torch.equal(x_adv, near.clamp(0, 1)[rows])
    assert set((~safe(x, EPS)).nonzero().squeeze(1).tolist()) == {*far.tolist(), *rows.tolist()}


def test_random_models() -> None:
    x, y = data(200)
    hollow = pclc.audit(Noisy(linear(1e4), sigma=0.01), x, y, eps=EPS, mode="quick")
    assert (hollow.verdict, hollow.conditions.random) == ("refuted", True)
    assert hollow.robust_accuracy.value == pytest.approx(float(safe(x, EPS).float().mean()), abs=0.05)
    assert float(hollow.witnesses.norms.max()) <= EPS + 1e-6
    honest = pclc.audit(Noisy(linear(), sigma=0.01), x, y, eps=EPS, mode="quick")
    assert honest.verdict == "not refuted"
    assert honest.claimed.value == pytest.approx(honest.robust_accuracy.value, abs=0.05)


class Guessing(nn.Module):
    """Is right on all images, but only in a third of its draws."""

    def forward(self, x: Tensor) -> Tensor:
        logits = torch.nn.functional.pad(5 * x, (0, 7), value=-9.0)  # 10 classes
        return torch.where(torch.rand(len(x), 1) < 0.65, logits.roll(3, 1), logits)


def test_a_random_model_that_is_seldom_right_is_not_near_chance() -> None:
    found = pclc.audit(Guessing().eval(), *data(60), eps=EPS, claim=0.9, mode="quick")
    assert 0.3 < found.clean.value < 0.4
    assert found.verdict == "refuted", found.reason
    assert found.checks


class Unsure(nn.Module):
    """Sure of the corners of the box, and wrong in a third of its draws wherever else it is asked."""

    def forward(self, x: Tensor) -> Tensor:
        inside = x.amax(1, keepdim=True) < 1
        return torch.where(inside & (torch.rand(len(x), 1) < 1 / 3), x.roll(1, 1), x)


def test_a_model_that_is_random_only_between_the_images_is_not_refuted_by_luck() -> None:
    x = torch.eye(3).repeat(40, 1)
    found = pclc.audit(Unsure().eval(), x, x.argmax(1), eps=EPS, claim=0.6, mode="quick")
    assert found.conditions.random
    assert found.verdict != "refuted", "two of three draws are right, whatever the attack"
    assert found.robust_accuracy.value == pytest.approx(2 / 3, abs=0.1)


def test_luck_is_no_refutation() -> None:
    """Each draw of this model is wrong at random in a third of the cases, whatever the image: nothing is overstated."""

    class Lucky(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            swap = torch.rand(len(x), 1) < 1 / 3
            far = 20 * nn.functional.one_hot(x.argmax(1), 3).float() + 0 * x
            return torch.where(swap, far.roll(1, 1), far)

    x = torch.eye(3).repeat(70, 1)
    found = pclc.audit(Lucky(), x, x.argmax(1), eps=EPS, mode="quick")
    assert found.conditions.random
    assert found.clean.value == pytest.approx(2 / 3, abs=0.05)
    assert found.robust_accuracy.value == pytest.approx(2 / 3, abs=0.05)  # the lucky choice is not in the score
    assert found.overstatement.bound == 0


class OneDraw(nn.Module):
    """Right in four of five passes, for all images of a pass alike, whatever they are."""

    def forward(self, x: Tensor) -> Tensor:
        truth = nn.functional.one_hot(torch.zeros(len(x), dtype=torch.int64), 4) + 0 * x.flatten(1).sum(1, keepdim=True)
        return truth if torch.rand(()) < 0.8 else truth.roll(1, 1)


def test_draws_that_images_share_do_not_pass_for_many() -> None:
    x, y = torch.rand(200, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(200, dtype=torch.int64)
    found = [pclc.audit(OneDraw(), x, y, eps=0.01, claim=0.8, mode="quick", seed=seed) for seed in range(5)]
    assert [audit.conditions.random for audit in found] == [True] * 5
    assert "refuted" not in [audit.verdict for audit in found], "the claim is true"
    for audit in found:
        assert audit.robust_accuracy.low <= 0.8 <= audit.robust_accuracy.high


def test_a_random_model_without_a_gradient_is_searched_blindly() -> None:
    class Hidden(Cut):
        def forward(self, x: Tensor) -> Tensor:
            return 20 * super().forward(x + 0.01 * torch.randn_like(x))

    x, y = data(60)
    found = pclc.audit(Hidden().eval(), x, y, eps=EPS, mode="quick")
    squares = [step for step in found.steps if step.attack.startswith("eot(square(")]
    assert all(step.black_box for step in squares)
    assert sum(step.broke for step in squares) > 0
    assert found.robust_accuracy.value < found.claimed.value
    assert {f.name: f.state for f in found.checks}["EOT has converged"] == "not applicable"


def test_the_claim_against_a_random_model_is_that_of_plain_pgd_where_its_gradient_is_mended() -> None:
    class Hidden(Detached):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + 0.01 * torch.randn_like(x))

    x, y = data(200)
    found = pclc.audit(Hidden(linear()).eval(), x, y, eps=EPS, mode="quick")
    assert found.conditions.random
    assert found.claimed.value > found.clean.value - 0.1, "without a gradient PGD stays where it starts"
    assert found.verdict == "refuted"


@pytest.mark.parametrize("wrapper", [Detached, Optimising])
def test_models_without_a_gradient_of_their_own(wrapper: type[nn.Module], case: Case) -> None:
    found = pclc.audit(wrapper(case.model).eval(), case.x[:60], case.y[:60], eps=0.2, mode="quick")
    assert found.verdict == "refuted"
    assert "gradient graph" in [finding.name for finding in found.fired]


def test_optimisation_inside_forward_that_nothing_breaks_cannot_be_judged() -> None:
    """What fires makes the audit look closer; where that does not help, it says so."""
    x, y = data(30)
    found = pclc.audit(Optimising(linear(), step=0.0), x, y, eps=1e-4, mode="quick")
    assert found.verdict == "cannot judge"
    assert "no optimisation inside forward" in found.reason
    assert found.conditions.escalated
    assert any(step.attack.startswith("md(") for step in found.steps)


def test_what_was_found_of_a_random_model_stays_when_the_audit_looks_closer() -> None:
    class Wavering(Optimising):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + 1e-3 * torch.randn_like(x))

    x, y = data(60)
    found = pclc.audit(Wavering(linear(), step=0.0).eval(), x, y, eps=0.01, mode="quick")
    assert (found.conditions.random, found.conditions.escalated) == (True, True)
    attacks = [step.attack for step in found.steps]
    assert any("steps=20" in attack for attack in attacks), "of mode quick"
    assert any("steps=40" in attack for attack in attacks), "of mode standard"
    first, second = (
        [int(attack.split("draws=")[1][:-1]) for attack in attacks if f"steps={steps}," in attack] for steps in (20, 40)
    )
    assert max(first) < max(second), "as many gain little on what is found, which would pass for convergence"
    assert 60 * (found.clean.value - found.robust_accuracy.value) >= sum(step.broke for step in found.steps) - 6


def test_without_any_gradient_a_twin_helps() -> None:
    x, y = data()
    alone = pclc.audit(Cut().eval(), x, y, eps=0.02, mode="quick")
    assert alone.verdict == "cannot judge"
    assert "some objective has a gradient" in alone.reason
    found = pclc.audit(Cut().eval(), x, y, eps=EPS, mode="quick", twin=linear())
    assert found.verdict == "refuted"
    assert found.steps[1].attack.startswith("transfer(")
    assert found.steps[1].broke > 0


def test_a_twin_helps_against_a_random_model_too() -> None:
    class Hidden(Cut):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + 1e-3 * torch.randn_like(x))

    found = pclc.audit(Hidden().eval(), *data(), eps=EPS, claim=0.9, mode="quick", twin=linear())
    assert found.conditions.random
    assert found.verdict == "refuted"
    step = next(step for step in found.steps if step.attack.startswith("transfer("))
    assert step.black_box
    assert step.broke > 10


def test_probabilities_are_attacked_through_their_logarithm() -> None:
    x, y = data()
    found = pclc.audit(nn.Sequential(linear(300.0), nn.Softmax(1)).eval(), x, y, eps=EPS, mode="quick")
    assert "logits, not probabilities" in [finding.name for finding in found.fired]
    assert found.robust_accuracy.value == pytest.approx(float(safe(x, EPS).float().mean()))


@pytest.mark.parametrize(("classes", "mode"), [(2, "standard"), (3, "quick")])
def test_few_classes_and_plain_functions(classes: int, mode: str) -> None:
    x, y = data(30, classes)
    found = pclc.audit(lambda x: 5 * x, x, y, eps=EPS, mode=mode)
    assert found.verdict == "not refuted"
    assert found.robust_accuracy.value == pytest.approx(float(safe(x, EPS).float().mean()))
    assert found.witnesses.model_hash is None


def test_l2() -> None:
    x, y = data()
    found = pclc.audit(linear(1e4), x, y, norm="L2", eps=0.15, mode="quick")
    top = x.topk(2, dim=1).values
    left = top[:, 0] - top[:, 1] > 0.15 * 2**0.5
    assert found.verdict == "refuted"
    assert found.robust_accuracy.value == pytest.approx(float(left.float().mean()), abs=0.02)


def test_full_runs_all_of_autoattack_even_when_it_is_refuted() -> None:
    x, y = data(40, classes=4)
    found = pclc.audit(linear(1e4, classes=4), x, y, eps=0.6, claim=0.5, mode="full")
    assert (found.verdict, found.robust_accuracy.value) == ("refuted", 0)
    made = [step.attack for step in found.steps]
    for component in AutoAttack(eps=0.6).components().values():
        assert str(component) in made
    assert len(made) == 1 + sum(len(ladder(mode, Threat("Linf", 0.6, 4, 1.0, True))) for mode in MODES)


def test_the_inverse_of_the_loss_comes_first() -> None:
    x, y = data(40)
    first = pclc.audit(linear(), x, y, eps=EPS, mode="quick", loss="pc-lc").steps[1:3]
    assert [step.attack.split("(")[0] for step in first] == ["probability_margin", "apgd"]
    assert 'objective="pc-lc"' in first[1].attack


def test_the_same_seed_gives_the_same_audit_and_leaves_everything_as_it_was(case: Case) -> None:
    model = nn.Sequential(Noisy(case.model, sigma=0.05), nn.Dropout()).train()
    before = torch.get_rng_state()
    results = [asdict(pclc.audit(model, case.x[:40], case.y[:40], eps=EPS, mode="quick").robust_accuracy)
               for _ in range(2)]  # fmt: skip
    assert results[0] == results[1]
    assert torch.equal(before, torch.get_rng_state())
    assert model.training
    assert model[1].training
    assert all(parameter.requires_grad for parameter in model.parameters())
    case.model.eval()


def test_the_lines_tell_the_story() -> None:
    x, y = data()
    text = str(pclc.audit(linear(1e4), x, y, eps=EPS, mode="quick", model_name="net"))
    for words in ("REFUTED", "claimed:", "worst case:", "net on 120 examples", "Linf eps 0.1", "vanishing gradients"):
        assert words in text


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"claim": 53}, "Expected `claim` to be an accuracy in"),
        ({"eps": 0.0}, "Expected `eps` to be above 0"),
        ({"eps": 8}, "Did you mean 8/255"),
        ({"mode": "slow"}, "Expected `mode` to be"),
        ({"norm": "L1"}, "Expected `norm` to be"),
    ],
)
def test_mistakes_get_a_sentence(settings: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        pclc.audit(linear(), *data(10), **settings)


def test_pixels_and_empty_data_are_refused() -> None:
    x, y = data(10)
    with pytest.raises(ValueError, match=r"use x\.float"):
        pclc.audit(linear(), x * 255, y)
    with pytest.raises(ValueError, match="at least one example"):
        pclc.audit(linear(), x[:0], y[:0])


def test_labels_beyond_the_classes_are_refused_wherever_they_stand() -> None:
    x, y = data(100)
    y[90] = 7  # beyond the examples that the model is looked at with
    with pytest.raises(ValueError, match=r"every label in `y` to lie in \[0, 2\].*but got 7"):
        pclc.audit(linear(), x, y, mode="quick")


@pytest.mark.parametrize(("overflow", "softened"), [(1, "ce*0.3"), (60, "ce")])
def test_logits_that_overflow_stop_no_audit(overflow: int, softened: str) -> None:
    x, y = data(60)
    x[:overflow, 0] = 1.0

    class Overflowing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x[:, :1] == 1, torch.tensor([torch.inf, torch.inf, 0.0]), 100 * x)

    found = pclc.audit(Overflowing().eval(), x, torch.where(x[:, 0] == 1, 0, y), eps=EPS, claim=1.0, mode="quick")
    assert found.verdict == "refuted"
    objective = "" if softened == "ce" else f', objective="{softened}"'
    assert f"apgd(eps=0.1, steps=40{objective})" in [step.attack for step in found.steps]


def test_scaling_changes_the_claim_and_not_the_truth(case: Case) -> None:
    plain, scaled = (
        pclc.audit(model.eval(), case.x, case.y, eps=EPS, mode="quick")
        for model in (case.model, Scaled(case.model, 1e4))
    )
    assert (plain.verdict, scaled.verdict) == ("not refuted", "refuted")
    assert scaled.robust_accuracy.value == pytest.approx(plain.robust_accuracy.value, abs=0.02)


@pytest.mark.parametrize("images", ["outside", "inside"])
def test_inside_inference_mode(images: str) -> None:
    x, y = data()
    model = linear()
    expected = pclc.audit(model, x, y, eps=EPS, mode="quick")
    with torch.inference_mode():
        if images == "inside":
            x, y = x.clone(), y.clone()
        found = pclc.audit(model, x, y, eps=EPS, mode="quick")
    assert (found.verdict, found.robust_accuracy) == (expected.verdict, expected.robust_accuracy)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("make", [torch.jit.script, lambda model: torch.jit.freeze(torch.jit.script(model))])
def test_scripts_are_audited_as_the_models_they_were_made_of(make: Callable[..., nn.Module]) -> None:
    model = nn.Sequential(nn.Identity(), linear()).eval()  # with a submodule, as on which hooks are wanted
    found, expected = (pclc.audit(m, *data(), eps=EPS, mode="quick") for m in (make(model), model))
    assert (found.verdict, found.robust_accuracy) == (expected.verdict, expected.robust_accuracy)
    assert [finding.name for finding in found.fired] == [finding.name for finding in expected.fired]


class InPlace(nn.Sequential):
    """Normalises its images where they are."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sub_(0.5).div_(0.5))


class Rounding(InPlace):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(16).round_().div_(16))


@pytest.mark.parametrize("kind", [InPlace, Rounding])
def test_a_model_that_writes_into_its_images_is_judged_as_one_that_does_not(kind: type[nn.Sequential]) -> None:
    class Copying(kind):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.clone())

    x, y = data(20)
    models = (made(linear()).eval() for made in (kind, Copying))
    found, other = (pclc.audit(model, x, y, eps=EPS, claim=1.0, mode="quick") for model in models)
    assert torch.equal(x, data(20)[0])
    assert found.verdict == other.verdict == "refuted"
    assert found.robust_accuracy == other.robust_accuracy
    assert [(f.name, f.measured) for f in found.checks] == [(f.name, f.measured) for f in other.checks]


def on_batch_statistics() -> nn.Module:
    """BatchNorm over the batch and the three pixels, of which the largest is the class."""
    norm = nn.BatchNorm1d(1, affine=False, track_running_stats=False)
    return nn.Sequential(nn.Unflatten(1, (1, 3)), norm, nn.Flatten(), linear(scale=1e4)).eval()


def that_needs_two_rows() -> nn.Module:
    """BatchNorm over the batch alone, which stops at a batch of one image."""
    return nn.Sequential(nn.BatchNorm1d(3, affine=False, track_running_stats=False), linear(scale=1e4)).eval()


@pytest.mark.parametrize("claim", [None, 0.9])
def test_a_model_that_mixes_the_images_of_a_batch_cannot_be_judged(claim: float | None) -> None:
    x, y = data()
    assert pclc.audit(linear(scale=1e4), x, y, eps=EPS, claim=claim, mode="quick").verdict == "refuted"
    for model in (Mixing(linear(scale=1e4)).eval(), on_batch_statistics(), that_needs_two_rows()):
        found = pclc.audit(model, x[:-7], y[:-7], eps=EPS, claim=claim, mode="quick")
        assert found.verdict == "cannot judge"
        assert "does not look at each image by itself" in found.reason
        assert "each image by itself" in [finding.name for finding in found.fired]


def test_a_model_that_knows_images_again_cannot_be_judged(case: Case) -> None:
    x, y = case.x[:60], case.y[:60]
    assert pclc.audit(case.model, x, y, eps=0.15, claim=0.9, mode="quick").verdict == "refuted"
    found = pclc.audit(Remembering(case.model).eval(), x, y, eps=0.15, claim=0.9, mode="quick")
    assert found.verdict == "cannot judge"
    assert "does not look at each image by itself" in found.reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_no_mixing(case: Case, dtype: torch.dtype) -> None:
    coarse = copy.deepcopy(case.model).to(dtype)

    def model(x: Tensor) -> Tensor:
        return coarse(x.to(dtype)).float()  # type: ignore[no-any-return]

    with torch.no_grad(), Victim(model, pclc.Execution(device="cpu")) as victim:
        assert mixing(victim, case.x[:64]) < MIXED / 2


@pytest.mark.parametrize(("share", "found"), [(0.05, True), (0.005, False)])
def test_mixing_is_told_where_it_matters(case: Case, share: float, found: bool) -> None:
    with torch.no_grad(), Victim(Mixing(case.model, share), pclc.Execution(device="cpu")) as victim:
        assert (mixing(victim, case.x[:64]) > MIXED) == found


def test_a_default_device_decides_nothing() -> None:
    """Where nobody says on which device tensors are made somewhere else, as after `torch.set_default_device`."""
    model, (x, y) = linear(), data(10)
    with torch.device("meta"):
        assert pclc.audit(model, x, y, eps=EPS, mode="quick").verdict != "cannot judge"


class Small(nn.Module):
    """Refuses more images at a time than fit into memory."""

    def __init__(self, model: nn.Module, most: int) -> None:
        super().__init__()
        self.model, self.most = model, most

    def forward(self, x: Tensor) -> Tensor:
        assert len(x) <= self.most, f"{len(x)} images at a time"
        return self.model(x)  # type: ignore[no-any-return]


def test_no_pass_is_larger_than_the_batch_size(case: Case) -> None:
    run = pclc.Execution(device="cpu", batch_size=16)
    found = pclc.audit(Small(case.model, 16), case.x, case.y, eps=EPS, mode="quick", execution=run)
    whole = pclc.audit(Small(case.model, 1000), case.x, case.y, eps=EPS, mode="quick")
    assert [finding.measured for finding in found.checks] == [finding.measured for finding in whole.checks]
