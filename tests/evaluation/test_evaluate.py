"""Accuracy under attack: what counts, and that nothing but the examples decides it."""

import dataclasses
import warnings
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import pclc
from pclc.attacks import EOT, FGSM, PGD, Attack, Noise, Transfer
from pclc.attacks.decide import is_fooled
from pclc.evaluation import Evaluation, Foreign, SetupWarning, combine, compare
from pclc.evaluation.budget import toward_image

CPU = pclc.Execution(device="cpu")
ATTACKS = [PGD(eps=0.1, alpha=0.03, steps=5), FGSM(eps=0.1, stop="never"), Noise(eps=0.1, draws=3)]


def robust(report: Evaluation) -> list[list[bool]]:
    return [outcome.robust.tolist() for outcome in report.outcomes]


def linear() -> nn.Module:
    """Two classes, the larger of two pixels: a perturbation of half the difference in Linf flips it."""
    model = nn.Linear(2, 2, bias=False)
    model.weight.data = torch.eye(2)
    return model.eval()


X = torch.tensor([[0.6, 0.5], [0.8, 0.5], [1.0, 0.0], [0.4, 0.5]])
Y = torch.tensor([0, 0, 0, 0])  # the last one is wrong on the clean image


def test_closed_form() -> None:
    report = pclc.evaluate(linear(), X, Y, ["fgsm(eps=0.1)"], eps=[0.2, 0.1, 0.6])
    assert report.clean.tolist() == [True, True, True, False]
    assert [outcome.eps for outcome in report.outcomes] == [0.1, 0.2, 0.6]
    assert robust(report) == [[False, True, True, False], [False, False, True, False], [False] * 4]
    assert [outcome.carried for outcome in report.outcomes] == [0, 1, 2]
    assert report.worst_case("Linf", 0.2).correct == 1
    with pytest.raises(ValueError, match="without which there is no worst case"):
        report.worst_case("Linf", 0.05)
    assert report.robust_accuracy.correct == 0
    first = report.outcomes[0].perturbations
    assert (first.n, first.mean_linf) == (1, pytest.approx(0.1, abs=1e-6)), "the wrong clean image is not in it"


def test_each_attack_counts_as_its_attack_says(case) -> None:
    """Against a loop by hand: with stop="never" the last iterate counts, otherwise a wrong clean image is broken."""
    report = pclc.evaluate(case.model, case.x, case.y, ATTACKS, seed=3)
    wrong = is_fooled(case.model, case.x, case.y)
    survivors = ~wrong
    for attack, outcome in zip(ATTACKS, report.outcomes, strict=True):
        success = attack.run(case.model, case.x, case.y, seed=3).success
        expected = ~success if attack.stop == "never" else ~(success | wrong)
        assert torch.equal(outcome.robust, expected)
        assert (outcome.attack, outcome.norm, outcome.eps) == (str(attack), "Linf", 0.1)
        survivors &= ~success
    assert torch.equal(report.survivors(), survivors)
    assert 0 < report.robust_accuracy.correct < report.clean_accuracy.correct < report.n


def test_never_lets_a_lucky_step_count() -> None:
    """With "never" the figure of a single attack may pass a clean mistake; the worst case does not."""
    report = pclc.evaluate(linear(), X, Y, [Noise(eps=0.5, draws=1, stop="never")], seed=1)
    by_noise = report.outcomes[0].robust
    assert bool(by_noise[3]), "the noise of this seed turns the wrong image right"
    assert not report.survivors()[3]


def test_nothing_but_the_example_decides(case) -> None:
    whole = pclc.evaluate(case.model, case.x, case.y, ATTACKS)
    for chunk, batch in [(7, None), (50, 13), (None, 1000)]:
        execution = pclc.Execution(device="cpu", batch_size=batch)
        other = pclc.evaluate(case.model, case.x, case.y, ATTACKS, chunk=chunk, execution=execution)
        assert robust(other) == robust(whole)
    order = torch.randperm(len(case.x))
    shuffled = pclc.evaluate(case.model, case.x[order], case.y[order], ATTACKS, index=order)
    for a, b in zip(shuffled.outcomes, whole.outcomes, strict=True):
        assert torch.equal(a.robust, b.robust[order])
    other_seed = pclc.evaluate(case.model, case.x, case.y, ATTACKS, seed=9)
    assert not torch.equal(other_seed.outcomes[0].linf, whole.outcomes[0].linf)


def test_the_model_comes_back_as_it_was(case) -> None:
    case.model.train()
    before = {name: value.clone() for name, value in case.model.state_dict().items()}
    with pytest.warns(SetupWarning, match=r"train mode"):
        report = pclc.evaluate(case.model, case.x, case.y, ["fgsm(eps=0.1)"])
    assert all(module.training for module in case.model.modules())
    assert all(torch.equal(value, before[name]) for name, value in case.model.state_dict().items())
    again = pclc.evaluate(case.model.eval(), case.x, case.y, ["fgsm(eps=0.1)"])
    assert robust(again) == robust(report)
    assert "train mode" in report.notes[0]


def test_carried_upwards_only_where_the_mode_allows(case) -> None:
    radii = [0.05, 0.1, 0.2]
    report = pclc.evaluate(case.model, case.x, case.y, [ATTACKS[0], ATTACKS[1]], eps=radii, keep_examples=True)
    stops, never = report.outcomes[:3], report.outcomes[3:]
    for smaller, larger in pairwise(stops):
        assert not (larger.robust & ~smaller.robust).any()
        turned = ~smaller.robust & report.clean
        assert larger.carried == int(turned.sum()) > 0
        assert torch.equal(larger.x_adv[turned], smaller.x_adv[turned]), "the same example counts"
        assert torch.equal(larger.linf[turned], smaller.linf[turned])
    without = pclc.evaluate(case.model, case.x, case.y, [ATTACKS[0]], eps=radii)
    for kept, not_kept in zip(stops, without.outcomes, strict=True):
        assert torch.equal(kept.linf, not_kept.linf)
    for outcome in never:
        alone = pclc.evaluate(case.model, case.x, case.y, [outcome.attack])
        assert torch.equal(alone.outcomes[0].robust, outcome.robust)
        assert outcome.carried == 0
        assert outcome.forwards == alone.outcomes[0].forwards
    assert stops[2].forwards < pclc.evaluate(case.model, case.x, case.y, [stops[2].attack]).outcomes[0].forwards


def test_kept_examples_are_what_counted(case) -> None:
    report = pclc.evaluate(case.model, case.x, case.y, ATTACKS, keep_examples=True)
    for outcome in report.outcomes:
        assert torch.equal(is_fooled(case.model, outcome.x_adv, case.y), ~outcome.robust)
        distance = (outcome.x_adv.double() - case.x.double()).flatten(1)
        assert torch.equal(distance.abs().amax(1), outcome.linf)
        assert torch.equal(distance.norm(dim=1), outcome.l2)
        turned = report.clean & ~outcome.robust
        assert outcome.perturbations.max_linf == outcome.linf[turned].max()
        assert outcome.perturbations.mean_l2 == pytest.approx(float(outcome.l2[turned].mean()))
    assert pclc.evaluate(case.model, case.x, case.y, ATTACKS).outcomes[0].x_adv is None


def test_passes_are_counted(case) -> None:
    report = pclc.evaluate(case.model, case.x, case.y, ['bim(eps=0.1, alpha=0.03, steps=4, stop="never")'])
    outcome = report.outcomes[0]
    assert outcome.backwards == 4 * len(case.x)
    direct = pclc.attacks.BIM(eps=0.1, alpha=0.03, steps=4, stop="never").run(case.model, case.x, case.y)
    assert outcome.forwards == direct.forwards
    assert report.rows()[1]["backward"] == "4.0"


def test_eight_bit(case) -> None:
    eps = 10.7 / 255
    attack = PGD(eps=eps, alpha=0.01, steps=10)
    fine = pclc.evaluate(case.model, case.x, case.y, [attack], keep_examples=True)
    coarse = pclc.evaluate(case.model, case.x, case.y, [attack], eight_bit=True, keep_examples=True)
    stored = coarse.outcomes[0].x_adv
    assert stored.dtype == torch.uint8
    images = stored.float() / 255
    assert torch.equal(is_fooled(case.model, images, case.y), ~coarse.outcomes[0].robust)
    assert float((images.double() - case.x.double()).abs().max()) <= 10 / 255 + 1e-7, "rounded toward the original"
    assert (coarse.outcomes[0].robust | ~fine.outcomes[0].robust).all(), "rounding breaks nothing that was not broken"
    assert coarse.conditions.eight_bit
    whole = pclc.evaluate(case.model, case.x, case.y, [FGSM(eps=8 / 255)], eight_bit=True).outcomes[0]
    assert whole.perturbations.max_linf == pytest.approx(8 / 255, abs=1e-7), "a whole number of levels stays"
    assert whole.outside == 0
    with pytest.raises(ValueError, match=r"multiples of 1/255"):
        pclc.evaluate(case.model, case.x * 0.9, case.y, [attack], eight_bit=True)


def test_whole_levels_survive_rounding() -> None:
    """A step of 16/255 comes out of float32 a little short for some pixels, and is 16 levels all the same."""
    levels = torch.arange(16.0, 240.0)[None]
    x = levels / 255
    for sign in (1, -1):
        assert torch.equal((toward_image(x + sign * 16 / 255, x) * 255).round(), levels + sign * 16)
        assert torch.equal((toward_image(x + sign * 15.9 / 255, x) * 255).round(), levels + sign * 15)


def leap(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Another library's attack: swaps the two pixels, however far that is."""
    assert not model.training
    model(x)
    return x.flip(1)


def test_attacks_of_others_are_held_to_their_budget() -> None:
    free = pclc.evaluate(linear(), X, Y, [leap])
    assert robust(free) == [[False] * 4]
    held = pclc.evaluate(linear(), X, Y, [Foreign(leap, "leap", "Linf", 0.2)])
    assert robust(held) == [[False, True, True, False]]
    outcome = held.outcomes[0]
    assert (outcome.outside, outcome.attack, outcome.stop) == (2, "leap", None)
    assert "2 examples of leap left the ball or the box and do not count as fooled." in held.notes
    assert outcome.forwards == 3 + 1, "its own passes are seen, and ours: one for the example inside"
    assert outcome.backwards is None
    by_eps = pclc.evaluate(linear(), X, Y, [leap], eps=0.45, norm="L2")
    assert robust(by_eps) == [[False, False, True, False]]


@dataclasses.dataclass(frozen=True, repr=False)
class Cheat(Attack):
    """An attack of our kind that says it has succeeded, and has left its ball."""

    name = "cheat"
    eps: float = 0.2
    norm: str = "Linf"

    def _perturb(self, victim: object, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        return x.flip(1)


def test_our_own_attacks_are_held_to_their_budget_too() -> None:
    report = pclc.evaluate(linear(), X, Y, [Cheat()])
    assert robust(report) == [[False, True, True, False]]
    assert report.outcomes[0].outside == 2


def test_what_leaves_the_box_does_not_count() -> None:
    for away in (lambda model, x, y: x.flip(1) - 0.6, lambda model, x, y: torch.full_like(x, float("nan"))):
        outcome = pclc.evaluate(linear(), X[:1], Y[:1], [away]).outcomes[0]
        assert (outcome.robust.tolist(), outcome.outside) == ([True], 1)
        assert outcome.perturbations.n == 0


def test_attacks_of_others_do_not_disturb(case) -> None:
    """The global generator is put back, x is a copy, and the same call gives the same result."""

    def rude(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        x += 0.2 * torch.rand_like(x)
        return x.clamp_(0, 1)

    torch.manual_seed(5)
    state, x = torch.get_rng_state(), case.x.clone()
    first = pclc.evaluate(case.model, case.x, case.y, [rude], keep_examples=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(case.x, x)
    torch.manual_seed(6)
    second = pclc.evaluate(case.model, case.x, case.y, [rude], keep_examples=True)
    assert torch.equal(first.outcomes[0].x_adv, second.outcomes[0].x_adv)


def test_transfer_is_an_attack_like_others(case) -> None:
    twin = pclc.create_model("lenet8")
    attack = Transfer(FGSM(eps=0.1), twin)
    report = pclc.evaluate(case.model, case.x, case.y, [attack], eps=[0.1, 0.3])
    expected = attack.run(case.model, case.x, case.y).success
    assert torch.equal(report.outcomes[0].robust, ~expected)
    assert [outcome.eps for outcome in report.outcomes] == [0.1, 0.3]
    assert report.outcomes[0].substitute == pclc.evaluation.model_hash(twin)


def test_an_attack_made_of_another_has_its_budget(case) -> None:
    report = pclc.evaluate(case.model, case.x[:20], case.y[:20], [EOT(FGSM(eps=0.1), draws=2)], eps=[0.1, 0.3])
    assert [(outcome.norm, outcome.eps) for outcome in report.outcomes] == [("Linf", 0.1), ("Linf", 0.3)]
    assert "eps=0.3" in report.outcomes[1].attack


def test_an_attack_without_eps_has_its_own_row() -> None:
    report = pclc.evaluate(linear(), X, Y, ["cw(steps=30, search_steps=3)", "fgsm(eps=0.1)"], eps=[0.1, 0.2])
    assert [(o.norm, o.eps) for o in report.outcomes] == [(None, None), ("Linf", 0.1), ("Linf", 0.2)]
    rows = [row["attack"] for row in report.rows()]
    assert rows[-3:] == ["worst case in Linf, eps 0.1", "worst case in Linf, eps 0.2", "worst case of all"]


def test_combine(case) -> None:
    both = pclc.evaluate(case.model, case.x, case.y, ATTACKS[:2])
    parts = [pclc.evaluate(case.model, case.x, case.y, [attack]) for attack in ATTACKS[:2]]
    combined = combine(*parts, parts[0])
    assert robust(combined) == robust(both)
    assert combined.robust_accuracy == both.robust_accuracy
    other_seed = pclc.evaluate(case.model, case.x, case.y, ATTACKS[:1], seed=1)
    assert len(combine(parts[0], other_seed).outcomes) == 2
    fewer = pclc.evaluate(case.model, case.x[:60], case.y[:60], ATTACKS[:1])
    with pytest.raises(ValueError, match=r"the same examples"):
        combine(parts[0], fewer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SetupWarning)
        another = pclc.evaluate(pclc.create_model("lenet8"), case.x, case.y, ATTACKS[1:2])
    with pytest.raises(ValueError, match=r"the same model_hash"):
        combine(parts[0], another)
    lied = dataclasses.replace(parts[0].outcomes[0], robust=~parts[0].outcomes[0].robust)
    with pytest.raises(ValueError, match=r"its outcomes differ"):
        combine(parts[0], dataclasses.replace(parts[0], outcomes=(lied,)))


def test_compare(case) -> None:
    weak = pclc.create_model("lenet8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SetupWarning)
        reports = [pclc.evaluate(model, case.x, case.y, ATTACKS[:1]) for model in (case.model, weak)]
    found = compare(*reports)
    a, b = (report.survivors() for report in reports)
    assert (found.only_first, found.only_second) == (int((a & ~b).sum()), int((b & ~a).sum()))
    assert found.difference == pytest.approx(float(a.double().mean() - b.double().mean()))
    assert found.p_value == pclc.evaluation.paired_test(found.only_first, found.only_second) < 0.05
    assert compare(reports[0], reports[0]).p_value == 1
    assert compare(*reports, norm="Linf", eps=0.1) == found
    with pytest.raises(ValueError, match="without which there is no worst case"):
        compare(*reports, norm="Linf", eps=0.05)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"x": torch.rand(4, 2) * 255}, r"values in \[0.*: use x.float\(\) / 255"),
        ({"x": (torch.rand(4, 2) * 255).byte()}, r"but got torch.uint8: use x.float\(\) / 255"),
        ({"x": torch.tensor([[-0.4, 2.8]] * 4)}, r"values in \[-0.4, 2.8\]: leave them as they were before normalis"),
        ({"x": torch.rand(4, 3)}, r"Expected `model` to take images of shape \(3,\), as `x` has them, but its first"),
        ({"x": X.double()}, r"to be torch.float64, as `x` is, but got torch.float32: use x.float\(\)"),
        ({"model": linear().half()}, r"to be torch.float32, as `x` is, but got torch.float16: use model.float\(\)"),
        ({"x": X - 1}, r"`x` to have values in \[0, 1\]"),
        ({"x": X[:0], "y": Y[:0]}, r"at least one example"),
        ({"y": Y + 2}, r"label in `y` to lie in \[0, 1\]"),
        ({"attacks": "fgsm(eps=0.1)"}, r"`attacks` to be a list"),
        ({"attacks": [3]}, r"a callable \(model, x, y\), but got 3"),
        ({"attacks": [FGSM]}, r"a callable \(model, x, y\), but got <class"),
        ({"attacks": [FGSM(eps=0.1), "fgsm(eps=0.1)"]}, r"every attack once, but got fgsm\(eps=0.1\) twice"),
        ({"attacks": [FGSM(eps=0.1, targeted=True)]}, r"untargeted attacks"),
        ({"attacks": [leap], "eps": [0.1, 0.2]}, r"one `eps` with leap"),
        ({"attacks": ["fgsm(eps=0.1)"], "eps": 8}, r"at most 1 in Linf"),
        ({"eps": []}, r"`eps` to be a number or several"),
        ({"norm": "L2"}, r"`norm` to be given with `eps`"),
        ({"index": torch.tensor([0, 1, 2, 2])}, r"`index` to be distinct"),
        ({"chunk": 0}, r"`chunk` to be a whole number of at least 1"),
        ({"seed": -1}, r"`seed`"),
        ({"attacks": [lambda model, x, y: x[:1]]}, r"to return a tensor of shape \(3, 2\), but got \(1, 2\)"),
    ],
)
def test_refusals(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        pclc.evaluate(**{"model": linear(), "x": X, "y": Y, **changes})  # type: ignore[arg-type]


def test_an_attack_that_takes_other_arguments_is_told_its_own() -> None:
    """As objects of torchattacks, which hold their model."""
    with pytest.raises(TypeError) as caught:
        pclc.evaluate(linear(), X, Y, [lambda images, labels: images])  # type: ignore[list-item,misc]
    assert caught.value.__notes__ == ["<lambda> is called as (model, x, y): wrap it in a function if it takes others."]


def test_a_report_is_printed_as_a_few_lines() -> None:
    text = str(pclc.evaluate(linear(), X, Y, ["fgsm(eps=0.1)", Foreign(leap, "leap", norm="Linf", eps=0.1)]))
    clean, *attacks, worst, note = text.splitlines()
    assert clean.startswith("clean: ")
    assert [line.partition(":")[0] for line in attacks] == ["fgsm(eps=0.1)", "leap"]
    assert worst.startswith("worst case of all: ")
    assert "left the ball" in note


def test_foreign_refusals() -> None:
    with pytest.raises(ValueError, match=r"`norm` and `eps` together"):
        Foreign(leap, norm="Linf")
    with pytest.raises(ValueError, match=r"`call` to be a callable"):
        Foreign("leap")  # type: ignore[arg-type]


@pytest.mark.parametrize("logits", [lambda z: z - z.mean(0), lambda z: z / 5 + z.cumsum(0) / 5])
def test_a_model_that_mixes_the_images_of_a_batch(case, logits) -> None:
    class Mixing(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return logits(z)

    model = nn.Sequential(case.model, Mixing()).eval()
    with pytest.warns(SetupWarning, match=r"mixes the images of a batch: .* not for single images"):
        pclc.evaluate(model, case.x, case.y)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*mixes")
        warnings.simplefilter("ignore", SetupWarning)  # their accuracy is another thing
        pclc.evaluate(model, case.x[:20], case.y[:20], execution=dataclasses.replace(CPU, batch_size=1))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_model_under_a_foreign_attack() -> None:
    script = torch.jit.script(linear())
    for model in (script, torch.jit.freeze(script)):
        report = pclc.evaluate(model, X, Y, [Foreign(leap, "leap", norm="Linf", eps=0.3)])
        assert robust(report) == robust(pclc.evaluate(linear(), X, Y, [Foreign(leap, "leap", norm="Linf", eps=0.3)]))
        assert report.outcomes[0].forwards is None, "a script takes no hooks that count"


def test_figures_of_float64_that_the_model_does_not_have_in_float32_are_told(case) -> None:
    class Saturating(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return torch.sigmoid(z + 16)

    model = nn.Sequential(case.model, Saturating()).eval()
    plain = model(case.x).argmax(1) == case.y
    with pytest.warns(SetupWarning, match=r"Float64, which then decides"):
        report = pclc.evaluate(model, case.x, case.y, execution=CPU)
    otherwise = (report.clean != plain).double().mean()
    assert otherwise > 0.05
    (note,) = report.notes
    assert f"classifies {100 * otherwise:.0f} % of 120 images differently" in note


def test_traps_are_told(case) -> None:
    probabilities = nn.Sequential(case.model, nn.Softmax(1)).eval()
    with pytest.warns(SetupWarning, match=r"probabilities"):
        report = pclc.evaluate(probabilities, case.x, case.y)
    assert len(report.notes) == 1
    wrong = nn.Sequential(pclc.models.Normalize([5.0], [0.1]), case.model)
    with pytest.warns(SetupWarning, match=r"near chance \(10.0 % for 10 classes\): is the normalisation missing"):
        pclc.evaluate(wrong.eval(), case.x, case.y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pclc.evaluate(case.model, case.x, case.y).notes == ()
