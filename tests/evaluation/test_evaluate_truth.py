"""Ways in which an evaluation could say too much or too little without an error."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pclc import audit
from pclc.attacks import PGD, HardLabel, Transfer
from pclc.evaluation import Foreign, SetupWarning, combine, compare, evaluate


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
    with pytest.raises(ValueError, match=r"Expected an attack within Linf, eps 0\.29.*Linf, eps 0\.3"):
        attacked.worst_case("Linf", 0.29)
    with pytest.raises(ValueError, match="two evaluations with attacks, or two without"):
        compare(attacked, clean)


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
    with pytest.warns(SetupWarning, match="refuted this claim on .* its witnesses are gone"):
        audit(model, x, y, eps=0.1, mode="quick", out=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SetupWarning)
        evaluate(model, x, y, ["fgsm(eps=0.1)", "fgsm(eps=0.2)"], out=tmp_path)
        audit(model, x, y, eps=0.1, mode="quick", out=tmp_path)
