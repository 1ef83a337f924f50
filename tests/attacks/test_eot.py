"""EOT: means over draws, of a model that is random itself."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from attack_zoo import SmallNet, digits, examples
from torch import nn

from pclc.attacks import BIM, EOT, FGSM, PGD, HardLabel, Transfer, parse_attack
from pclc.attacks.eot import MeanVictim
from pclc.attacks.objectives import get_objective
from pclc.attacks.victim import Victim
from pclc.execution import Execution


class Noisy(nn.Module):
    """A classifier of images with noise on them, from torch's generator."""

    def __init__(self, model, size):
        super().__init__()
        self.model, self.size = model, size

    def forward(self, x):
        return self.model(x + self.size * torch.randn_like(x))


def expected_error(model, x, y, draws=20):
    with torch.no_grad():
        return torch.stack([model(x).argmax(1) != y for _ in range(draws)]).double().mean().item()


def test_it_beats_the_attack_inside_on_a_random_model():
    torch.manual_seed(0)
    model, x, y = digits()
    noisy = Noisy(model, 0.3)
    x, y = x[:150], y[:150]
    early, full = (PGD(eps=0.1, alpha=0.05, steps=10, stop=stop) for stop in ("success", "never"))
    errors = [expected_error(noisy, attack(noisy, x, y), y) for attack in (early, full, EOT(full, draws=10))]
    print("expected error: PGD {:.3f}, with all steps {:.3f}, with EOT {:.3f}".format(*errors))
    assert expected_error(noisy, x, y) + 0.1 < errors[0]
    assert errors[0] + 0.1 < errors[1], "one lucky draw ends an attack that stops at success"
    assert errors[1] + 0.02 < errors[2], "the gradient of one draw leads astray"


def test_success_is_that_of_one_fresh_draw():
    """Its mean is the expected error; an example is not taken for fooled because one draw was wrong."""
    torch.manual_seed(0)
    model, x, y = digits()
    noisy = Noisy(model, 0.3)
    result = EOT(PGD(eps=0.1, alpha=0.03, steps=5), draws=5).run(noisy, x, y)
    assert abs(result.success.double().mean() - expected_error(noisy, result.x_adv, y)) < 0.06


def test_answers_are_means():
    """Of a model that counts its calls: each draw adds one to a slope."""
    calls = []

    def model(x):
        calls.append(len(x))
        return torch.stack([len(calls) * x.sum(1), 0 * x.sum(1)], 1)

    victim = Victim(model, Execution().for_attacks(torch.device("cpu")))
    mean = MeanVictim(victim, draws=3)
    x, y = torch.rand(4, 2, dtype=torch.float64), torch.zeros(4, dtype=torch.long)
    torch.testing.assert_close(mean.logits(x)[:, 0], 2 * x.sum(1))  # (1 + 2 + 3) / 3
    torch.testing.assert_close(mean.exact_logits(x)[:, 0], 5 * x.sum(1))
    slope = mean.gradient(get_objective("margin"), x, y)
    torch.testing.assert_close(slope.value, -8 * x.sum(1))
    torch.testing.assert_close(slope.grad, torch.full_like(x, -8))
    assert calls == [4] * 9
    assert (victim.cost.forwards, victim.cost.backwards, victim.cost.gradients) == (36, 12, 4)


def test_a_gradient_is_zero_only_where_it_is_in_every_draw():
    calls = []

    def model(x):
        calls.append(1)
        return torch.stack([len(calls) % 2 * x.sum(1), 0 * x.sum(1)], 1)

    x, y = torch.rand(4, 2), torch.zeros(4, dtype=torch.long)
    assert EOT(FGSM(eps=0.1), draws=2).run(model, x, y).zero_gradient_share == 0


@pytest.mark.parametrize(
    "attack", [BIM(eps=0.1, alpha=0.02, steps=6), PGD(eps=0.1, alpha=0.02, steps=6), HardLabel(eps=0.1, queries=40)]
)
def test_a_model_without_noise_is_attacked_as_without_it(attack):
    """Exactly, since the mean of two equal numbers is exact: so what holds for the attack inside holds for EOT."""
    model = SmallNet().double().eval()
    x, y = examples(model)
    index = torch.arange(100, 100 + len(x))
    plain = replace(attack, stop="never").run(model, x, y, seed=5, index=index)
    mean = EOT(attack, draws=2).run(model, x, y, seed=5, index=index)
    assert torch.equal(mean.x_adv, plain.x_adv)
    assert torch.equal(mean.success, plain.success)
    assert mean.backwards == 2 * plain.backwards


def test_text():
    attack = EOT(PGD(eps=8 / 255, alpha=2 / 255, steps=40))
    assert str(attack) == 'eot(pgd(eps=8/255, alpha=2/255, steps=40, stop="never"), draws=20)'
    assert repr(attack).startswith("EOT(PGD(eps=8/255")
    targeted = EOT(FGSM(eps=0.1, targeted=True), draws=3)
    assert targeted.targeted
    for one in (attack, targeted):
        assert parse_attack(str(one)) == parse_attack(repr(one)) == one
    assert parse_attack("eot(draws=3, attack=fgsm(eps=1/10, targeted=True))") == targeted
    assert parse_attack("eot(fgsm(eps=0.1))") == EOT(FGSM(eps=0.1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eot(draws=3)", r"`eot` to have `attack`, but got"),
        ("eot(3)", r"an attack such as pgd\(.*\), but got 'eot\(3\)'"),
        ("eot(fgsm(eps=0.1), 3)", r"every argument of `eot` by name"),
        ("eot(fgsm(eps=0.1), attack=fgsm(eps=0.1))", r"`attack` once"),
        ("eot(fgsm(eps=0.1), stop='never')", r"arguments of `eot` among attack, draws, but got 'stop'"),
        ("eot(fgsn(eps=0.1))", r"an attack among .* but got 'fgsn'\. Did you mean 'fgsm'\?"),
        ("eot(eot(fgsm(eps=0.1)))", r"`attack` to be an attack such as PGD, but got a EOT"),
        ("pgd(fgsm(eps=0.1), eps=0.1)", r"every argument of `pgd` by name"),
    ],
)
def test_refusals_of_text(text, message):
    with pytest.raises(ValueError, match=message):
        parse_attack(text)


def test_refusals():
    with pytest.raises(ValueError, match=r"`attack` to be an attack such as PGD, but got a str"):
        EOT("pgd")
    with pytest.raises(ValueError, match=r"`attack` to be an attack such as PGD, but got a Transfer"):
        EOT(Transfer(FGSM(eps=0.1), nn.Identity()))
    with pytest.raises(ValueError, match=r"`draws` to be a whole number of at least 1, but got 0"):
        EOT(FGSM(eps=0.1), draws=0)


def test_what_it_recorded_is_gone_when_it_is_over(monkeypatch):
    """A mean has graphs of its own, gigabytes of them, and nobody holds it after the attack."""
    made = []

    def remembered(self, *arguments, make=MeanVictim.__init__):
        made.append(weakref.ref(self))
        make(self, *arguments)

    monkeypatch.setattr(MeanVictim, "__init__", remembered)
    x, y = torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
    gc.disable()
    try:
        EOT(PGD(eps=0.1, alpha=0.02, steps=2), draws=2)(nn.Linear(4, 3), x, y)
        assert [reference() for reference in made] == [None]
    finally:
        gc.enable()
