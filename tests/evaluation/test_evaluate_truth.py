"""Ways in which an evaluation could say too much or too little without an error."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pclc import Execution, audit
from pclc.attacks import FGSM, PGD, AttackWarning, HardLabel, Transfer
from pclc.evaluation import Foreign, SetupWarning, combine, compare, evaluate, model_hash


class Scaled(nn.Module):
    """A factor that is neither a parameter nor printed."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3, bias=False)
        self.linear.weight.data = torch.eye(3)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.linear(x)  # type: ignore[no-any-return]


def images(n: int = 30) -> tuple[Tensor, Tensor]:
    x = (255 * torch.rand(n, 3, generator=torch.Generator().manual_seed(0))).round() / 255
    return x, x.argmax(1)


def test_what_a_model_is_includes_its_plain_attributes(tmp_path: Path) -> None:
    x, y = images()
    first = evaluate(Scaled(1.0).eval(), x, y, ["fgsm(eps=0.2)"], out=tmp_path)
    with pytest.warns(SetupWarning):  # that the folder holds something else
        second = evaluate(Scaled(-1.0).eval(), x, y, ["fgsm(eps=0.2)"], out=tmp_path)
    assert first.clean_accuracy.value == 1.0
    assert second.clean_accuracy.value == 0.0


def test_what_a_substitute_is_too(tmp_path: Path) -> None:
    x, y = images()
    model = Scaled(1.0).eval()
    found = []
    for factor in (-1.0, 1.0):
        attack = Transfer(PGD(0.3, alpha=0.1, steps=5, stop="never"), Scaled(factor).eval(), stop="never")
        found.append(evaluate(model, x, y, [attack], out=tmp_path).robust_accuracy.value)
    assert found[0] == 1.0, "the wrong way round"
    assert found[1] < 0.5


def test_hard_label_attacks_have_a_ball(tmp_path: Path) -> None:
    x, y = images()
    found = evaluate(Scaled(1.0).eval(), x, y, [HardLabel(eps=0.3, queries=200)], out=tmp_path)
    assert found.budgets == [("Linf", 0.3)]
    assert found.worst_case("Linf", 0.3).value < 1.0


@pytest.mark.parametrize("attack", ["pgd(eps=0.2, alpha=0.001, steps=200)", "fab(eps=0.2)"])
def test_rounding_does_not_undo_what_stops_at_the_boundary(attack: str) -> None:
    x, y = images()
    model = Scaled(1.0).eval()
    plain = evaluate(model, x, y, [attack])
    rounded = evaluate(model, x, y, [attack], eight_bit=True, keep_examples=True)
    assert plain.robust_accuracy.correct < 25
    assert rounded.robust_accuracy.correct <= plain.robust_accuracy.correct + 1, "a level of 255 is little of 0.2"
    outcome = rounded.outcomes[0]
    assert outcome.x_adv is not None
    kept = outcome.x_adv.float() / 255
    fooled = ~outcome.robust
    assert (model(kept).argmax(1) != y)[fooled].all()
    assert (kept - x).abs().max() <= 0.2 + 1e-6


def test_a_random_model_is_told() -> None:
    x, y = images()
    with pytest.warns(SetupWarning, match="seems to be random"):
        evaluate(lambda x: x + 0.1 * torch.randn(x.shape), x, y)


def test_a_budget_without_an_attack_has_no_worst_case() -> None:
    x, y = images()
    model = Scaled(1.0).eval()
    attacked, clean = evaluate(model, x, y, ["fgsm(eps=0.3)"]), evaluate(model, x, y)
    for eps in (0.29, 0.31):  # what is left at 0.3 says too little about 0.31
        with pytest.raises(ValueError, match=rf"Expected an attack with Linf, eps {eps}.*Linf, eps 0\.3"):
            attacked.worst_case("Linf", eps)
    with pytest.raises(ValueError, match="two evaluations with attacks, or two without"):
        compare(attacked, clean)


def test_a_radius_is_found_as_it_is_meant() -> None:
    x, y = images()
    found = evaluate(Scaled(1.0).eval(), x, y, [PGD(0.01, 0.01, 1), PGD(0.1 + 0.2, 0.1, 5)])
    assert found.worst_case("Linf", 0.3) == found.robust_accuracy
    assert found.worst_case("Linf", 0.3).correct < found.worst_case("Linf", 0.01).correct


def test_only_what_was_measured_alike_is_compared() -> None:
    x, y = images()
    model = Scaled(1.0).eval()
    attacks = ["fgsm(eps=0.1)", "fgsm(eps=0.3)"]
    small, both = evaluate(model, x, y, attacks[:1]), evaluate(model, x, y, attacks)
    with pytest.raises(ValueError, match=r"the same budgets, or a `norm` and an `eps` that both have"):
        compare(small, both)
    with pytest.raises(ValueError, match=r"Expected an attack with Linf, eps 0\.3"):
        compare(small, both, "Linf", 0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compare(small, both, "Linf", 0.1).difference == 0
    weaker = evaluate(model, x, y, ["noise(eps=0.1)"])
    with pytest.warns(SetupWarning, match=r"different attacks, .* first: fgsm\(eps=0.1\); only the second: noise"):
        assert compare(small, weaker).difference <= 0
    with pytest.raises(ValueError, match="the same eight_bit"):
        compare(small, evaluate(model, x, y, attacks[:1], eight_bit=True))


def test_an_attack_of_others_that_changes_the_model() -> None:
    """Train mode moves the running statistics; figures are of the model that was given, and it comes back so."""
    x, y = images()
    model = nn.Sequential(nn.BatchNorm1d(3), Scaled(1.0)).eval()
    y, before = model(x).argmax(1), model_hash(model)

    def rude(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        model.train()
        for _ in range(30):
            model(x * torch.tensor([1.0, 0.1, 0.0]))
        return x

    with pytest.warns(AttackWarning, match="rude changed the model while it ran"):
        found = evaluate(model, x, y, [Foreign(rude, norm="Linf", eps=0.1), "fgsm(eps=0.0)"])
    assert [outcome.accuracy.value for outcome in found.outcomes] == [1.0, 1.0]
    assert model_hash(model) == before == found.conditions.model_hash


def test_an_attack_of_others_that_uses_its_memory_again() -> None:
    x, y = images()
    memory = torch.empty(10, 3)

    def thrifty(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return memory[: len(x)].copy_(FGSM(eps=0.2)(model, x, y))

    model, execution = Scaled(1.0).eval(), Execution(device="cpu", batch_size=10)
    attacks = [Foreign(thrifty, norm="Linf", eps=0.2), FGSM(eps=0.2)]
    found = evaluate(model, x, y, attacks, execution=execution)
    assert torch.equal(found.outcomes[0].robust, found.outcomes[1].robust)


def test_the_same_name_at_another_radius_is_another_attack() -> None:
    x, y = images()
    model = Scaled(1.0).eval()

    def turn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return x + 0.0

    large, small = (evaluate(model, x, y, [Foreign(turn, "aa", "Linf", eps)]) for eps in (0.3, 0.1))
    assert combine(large, small).budgets == [("Linf", 0.3), ("Linf", 0.1)]


def test_what_a_new_evaluation_or_audit_replaces_is_told(tmp_path: Path) -> None:
    x, y = images()
    model = Scaled(1.0).eval()
    evaluate(model, x, y, ["fgsm(eps=0.2)"], out=tmp_path)
    with pytest.warns(SetupWarning, match=r"no longer in it: fgsm\(eps=0\.2\)"):
        evaluate(model, x, y, ["fgsm(eps=0.1)"], out=tmp_path)
    audit(model, x, y, eps=0.2, mode="quick", out=tmp_path)
    with pytest.warns(SetupWarning, match="The audit at Linf eps 0.2 in .* was replaced"):
        audit(model, x, y, eps=0.1, mode="quick", out=tmp_path)
    document = json.loads((tmp_path / "audit.json").read_text())
    assert document["verdict"] != "refuted"
    (tmp_path / "audit.json").write_text(json.dumps({**document, "verdict": "refuted"}))
    with pytest.warns(SetupWarning, match="refuted this claim on .* Its witnesses are gone"):
        audit(model, x, y, eps=0.1, mode="quick", out=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SetupWarning)
        evaluate(model, x, y, ["fgsm(eps=0.1)", "fgsm(eps=0.2)"], out=tmp_path)
        audit(model, x, y, eps=0.1, mode="quick", out=tmp_path)
