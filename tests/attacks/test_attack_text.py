"""Attacks as text: parsed without evaluating anything, printed back the same."""

import pytest
from attack_zoo import ZOO

from pclc.attacks import BIM, FGSM, PGD, SPSA, CarliniWagner, Noise, Transfer, attack_names, parse_attack


@pytest.mark.parametrize(
    ("text", "attack"),
    [
        ("fgsm(eps=0.3)", FGSM(eps=0.3)),
        ('fgsm(eps=8/255, objective="ce*0.01")', FGSM(eps=8 / 255, objective="ce*0.01")),
        ("pgd(eps=8/255, alpha=2/255, steps=40)", PGD(eps=8 / 255, alpha=2 / 255, steps=40)),
        (
            'pgd(eps=0.5, alpha=0.1, steps=10, norm="L2", random_start=False, targeted=True, stop="never")',
            PGD(eps=0.5, alpha=0.1, steps=10, norm="L2", random_start=False, targeted=True, stop="never"),
        ),
        ("bim(eps=0.5/255, alpha=0.25/255, steps=2)", BIM(eps=0.5 / 255, alpha=0.25 / 255, steps=2)),
        ("bim(eps=0.2, alpha=0.03, steps=10)", BIM(eps=51 / 255, alpha=0.03, steps=10)),
        ("cw()", CarliniWagner()),
        ("cw(lr=0.001, steps=100, initial_const=1e-05)", CarliniWagner(lr=0.001, steps=100, initial_const=1e-5)),
        ("spsa(eps=1/255)", SPSA(eps=1 / 255)),
        ("noise(eps=0, draws=3)", Noise(eps=0, draws=3)),
    ],
)
def test_round_trip(text, attack):
    assert str(attack) == text
    assert parse_attack(text) == attack
    assert parse_attack(repr(attack)) == attack


@pytest.mark.parametrize("entry", [entry for name, entry in ZOO.items() if name != "transfer"])
@pytest.mark.parametrize("stop", ["success", "never"])
def test_round_trip_of_the_table(entry, stop):
    attack = entry(stop=stop)
    again = parse_attack(str(attack))
    assert again == attack
    assert hash(again) == hash(attack)


def test_other_spellings():
    attack = PGD(eps=0.1, alpha=0.05, steps=5)
    for text in (" PGD( steps = 5,\n eps=0.1, alpha=1/20 ) ", "pgd(eps=.1, alpha=5e-2, steps=5, norm='Linf')"):
        assert parse_attack(text) == attack
    assert parse_attack("CarliniWagner(steps=5)") == parse_attack("cw(steps=5)")


def test_names():
    assert attack_names() == (
        "apgd",
        "apgd_t",
        "autoattack",
        "bim",
        "cw",
        "ddn",
        "eot",
        "fab",
        "fgsm",
        "hard_label",
        "md",
        "mim",
        "noise",
        "pgd",
        "probability_margin",
        "spsa",
        "square",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pdg(eps=0.1)", r"an attack among .*bim, .* but got 'pdg'\. Did you mean 'pgd'\?"),
        ("zzz(eps=0.1)", r"but got 'zzz'\.$"),
        ("fgsm(epz=0.1)", r"arguments of `fgsm` among .*eps.*, but got 'epz'\. Did you mean 'eps'\?"),
        ("fgsm(0.1)", r"every argument of `fgsm` by name"),
        ("fgsm(**{'eps': 1})", r"every argument of `fgsm` by name"),
        ("fgsm()", r"`fgsm` to have `eps`, but got 'fgsm\(\)'"),
        ("pgd(eps=0.1)", r"`pgd` to have `alpha` and `steps`"),
        ("fgsm", r"`fgsm` to have `eps`, but got 'fgsm'"),
        ("fgms", r"Did you mean 'fgsm'"),
        ("3", r"an attack such as pgd\(eps=8/255, alpha=2/255, steps=40\), but got '3'"),
        ("fgsm(eps=0.1", r"an attack such as .* but got 'fgsm\(eps=0\.1'"),
        ("", r"an attack such as .* but got ''"),
        ("os.system('ls')", r"an attack such as"),
        ("fgsm(eps=__import__('os'))", r"`eps` to be a number, a fraction .* but got __import__\('os'\)"),
        ("fgsm(eps=2**-3)", r"`eps` to be a number, a fraction a/b, .* but got 2 \*\* \(?-3"),
        ("fgsm(eps=1/0)", r"`eps` to be a number, a fraction a/b, .* but got 1 / 0"),
        ("fgsm(eps=eps)", r"`eps` to be a number, a fraction a/b, .* but got eps"),
        ("fgsm(eps=None)", r"`eps` to be a number, a fraction a/b, .* but got None"),
        ("fgsm(eps=-0.1)", r"`eps` to be a finite number of at least 0, but got -0\.1"),
        ("fgsm(eps=0.1, eps=0.2)", r"`eps` once, but got"),
        ("transfer(fgsm(eps=0.1))", r"needs its substitute model, which text cannot hold"),
    ],
)
def test_refusals(text, message):
    with pytest.raises(ValueError, match=message):
        parse_attack(text)


def test_a_transfer_can_be_printed():
    def substitute(x):
        return x

    attack = Transfer(FGSM(eps=8 / 255), substitute, stop="never")
    assert str(attack) == 'transfer(fgsm(eps=8/255, stop="never"), substitute=substitute, stop="never")'
