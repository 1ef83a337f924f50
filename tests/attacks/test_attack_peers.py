"""Parity with other libraries on a trained model: same images, same budget (`make peers`)."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from attack_zoo import digits

from pclc.attacks import APGD, BIM, FGSM, MIM, PGD, SPSA, AutoAttack, CarliniWagner
from pclc.attacks.apgd import edge_point
from pclc.bench.parity import bench_parity

pytestmark = pytest.mark.peers

EPS, ALPHA, STEPS = 0.1, 0.01, 20
REASON = "needs the peers: make peers"


def peer(name):
    """The library, or a skip; what it warns of on import is its own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=REASON)


def art_classifier(model):
    peer("art")
    from art.estimators.classification import PyTorchClassifier

    return PyTorchClassifier(model, torch.nn.CrossEntropyLoss(), (1, 8, 8), 10, clip_values=(0, 1), device_type="cpu")


def of_torchattacks(kind, model, x, y, **settings):
    return getattr(peer("torchattacks"), kind)(model, **settings)(x, y)


def of_foolbox(attack, model, x, y):
    foolbox = peer("foolbox")
    return attack(foolbox)(foolbox.PyTorchModel(model, bounds=(0, 1)), x, y, epsilons=EPS)[1]


def of_art(make, model, x, y):
    classifier = art_classifier(model)
    import art.attacks.evasion

    return torch.from_numpy(make(art.attacks.evasion, classifier).generate(x.numpy(), y=y.numpy()).astype(np.float32))


THEIRS = {
    ("fgsm", "torchattacks"): lambda *a: of_torchattacks("FGSM", *a, eps=EPS),
    ("fgsm", "foolbox"): lambda *a: of_foolbox(lambda fb: fb.attacks.LinfFastGradientAttack(), *a),
    ("fgsm", "art"): lambda *a: of_art(lambda art, c: art.FastGradientMethod(c, eps=EPS), *a),
    ("bim", "torchattacks"): lambda *a: of_torchattacks("BIM", *a, eps=EPS, alpha=ALPHA, steps=STEPS),
    ("bim", "foolbox"): lambda *a: of_foolbox(
        lambda fb: fb.attacks.LinfBasicIterativeAttack(abs_stepsize=ALPHA, steps=STEPS), *a
    ),
    ("bim", "art"): lambda *a: of_art(
        lambda art, c: art.BasicIterativeMethod(c, eps=EPS, eps_step=ALPHA, max_iter=STEPS, verbose=False), *a
    ),
    ("mim", "torchattacks"): lambda *a: of_torchattacks("MIFGSM", *a, eps=EPS, alpha=ALPHA, steps=STEPS),
    ("mim", "foolbox"): lambda *a: of_foolbox(
        lambda fb: fb.attacks.mi_fgsm.LinfMomentumIterativeFastGradientMethod(abs_stepsize=ALPHA, steps=STEPS), *a
    ),
    ("mim", "art"): lambda *a: of_art(
        lambda art, c: art.MomentumIterativeMethod(c, eps=EPS, eps_step=ALPHA, max_iter=STEPS, verbose=False), *a
    ),
    ("pgd", "torchattacks"): lambda *a: of_torchattacks("PGD", *a, eps=EPS, alpha=ALPHA, steps=STEPS),
    ("pgd", "foolbox"): lambda *a: of_foolbox(
        lambda fb: fb.attacks.LinfProjectedGradientDescentAttack(abs_stepsize=ALPHA, steps=STEPS), *a
    ),
    ("pgd", "art"): lambda *a: of_art(
        lambda art, c: art.ProjectedGradientDescent(
            c, eps=EPS, eps_step=ALPHA, max_iter=STEPS, num_random_init=1, verbose=False
        ),
        *a,
    ),
    ("spsa", "torchattacks"): lambda *a: of_torchattacks(
        "SPSA", *a, eps=EPS, lr=0.02, delta=0.01, nb_iter=10, nb_sample=32
    ),
}
OURS = {
    "fgsm": FGSM(eps=EPS, stop="never"),
    "bim": BIM(eps=EPS, alpha=ALPHA, steps=STEPS, stop="never"),
    "mim": MIM(eps=EPS, alpha=ALPHA, steps=STEPS, stop="never"),
    "pgd": PGD(eps=EPS, alpha=ALPHA, steps=STEPS, stop="never"),
    "spsa": SPSA(eps=EPS, lr=0.02, delta=0.01, steps=10, samples=32, stop="never"),
}


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).double().mean().item()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("attack", "library"), THEIRS)
def test_parity(attack, library):
    model, x, y = digits()
    theirs = THEIRS[attack, library](model, x, y)
    model.eval()
    ours = OURS[attack](model, x, y)
    moved = (ours - theirs).abs()
    accuracies = accuracy(model, ours, y), accuracy(model, theirs, y)
    print(f"{attack} against {library}: accuracy {accuracies}, largest difference {moved.max():.3g}")
    if attack == "fgsm":
        assert moved.max() <= 6e-8
    elif attack == "bim":
        # A pixel whose gradient is zero up to rounding may step either way.
        assert (moved > 1e-6).double().mean() < 1e-3
    share = sum(accuracies) / 2
    error = math.sqrt(2 * share * (1 - share) / len(x))
    deterministic = attack in ("fgsm", "bim", "mim")
    assert abs(accuracies[0] - accuracies[1]) <= (0.003 if deterministic else 2 * error)


@pytest.mark.filterwarnings("ignore")
def test_carlini_wagner_is_as_near_as_foolbox():
    model, x, y = digits()
    x, y = x[:60], y[:60]
    foolbox = peer("foolbox")
    settings = {"steps": 150, "confidence": 0, "initial_const": 1e-3}
    theirs = foolbox.attacks.L2CarliniWagnerAttack(binary_search_steps=9, stepsize=0.01, **settings)
    x_theirs = theirs(foolbox.PyTorchModel(model, bounds=(0, 1)), x, y, epsilons=None)[1]
    result = CarliniWagner(lr=0.01, search_steps=9, **settings).run(model, x, y)
    ours, others = ((adversarial - x).flatten(1).norm(dim=1) for adversarial in (result.x_adv, x_theirs))
    ours = torch.where(result.success, ours, torch.inf)
    others = torch.where(x_theirs.flatten(1).any(1), others, torch.inf)  # foolbox returns black where it finds nothing
    print(
        f"cw: median {ours.median()}, {ours.isinf().sum()} not found; foolbox {others.median()}, {others.isinf().sum()}"
    )
    assert ours.isinf().sum() <= others.isinf().sum()
    assert ours.median() <= others.median() * (1 + 1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.15), ("L2", 0.6)])
@pytest.mark.parametrize("objective", ["ce", "dlr"])
def test_apgd_is_pyautoattack_from_the_same_start(objective, norm, eps):
    peer("pyautoattack")
    from pyautoattack.autopgd_base import APGDAttack

    model, x, y = digits()
    model, x, y = copy.deepcopy(model).double(), x[:100].double(), y[:100]
    start = edge_point(x, eps, norm, 0, torch.arange(len(x)), 0)
    theirs = APGDAttack(model, norm=norm, eps=eps, loss=objective)
    theirs.init_hyperparam(x)
    torch.set_default_dtype(torch.float64)  # or it compares values in float32
    try:
        best, right, _, _ = theirs.attack_single_run(x, y, x_init=start)
    finally:
        torch.set_default_dtype(torch.float32)
    result = APGD(eps, norm=norm, objective=objective, stop="never").run(model, x, y, seed=0)
    same = (result.x_adv - best).abs().flatten(1).amax(1) < 1e-9
    print(f"apgd-{objective} {norm}: accuracy {right.double().mean()}, the same points {same[right].double().mean()}")
    assert 0 < right.sum() < len(x)
    assert (result.success == ~right).double().mean() >= 0.99
    # The comparison of the first step differs, see APGD.
    assert same[right].double().mean() > 0.9


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_autoattack_is_as_strong_as_pyautoattack(norm):
    peer("pyautoattack")
    model, x, y = digits()
    attack = AutoAttack(0.1 if norm == "Linf" else 0.5, norm)
    result = bench_parity(
        model, x[:60], y[:60], attack, "digits", seeds=1, components=("apgd-ce", "apgd-t", "autoattack")
    )
    for row in result.rows:
        print(row)
        assert row["difference (points)"] <= 100 / 60 + 1e-9, "one image"
        assert row["of these in float64"] == row["fooled by pclc only"]


@pytest.mark.filterwarnings("ignore")
def test_parity_goes_on_after_what_is_finished_and_only_for_the_same_model():
    peer("pyautoattack")
    model, x, y = digits()

    def bench(model, components, before=None):
        found = []
        attack = AutoAttack(0.1)
        result = bench_parity(
            model, x[:20], y[:20], attack, "digits", components, 1, report=found.append, before=before
        )
        return result, len(found)

    first, computed = bench(model, ("apgd-ce",))
    assert computed == 1
    second, computed = bench(model, ("apgd-ce", "apgd-t"), first)
    assert computed == 1
    assert [row["attack"] for row in second.rows] == ["apgd-ce", "apgd-t"]
    assert second.rows[0] == first.rows[0]  # the time it took included
    other = copy.deepcopy(model)
    with torch.no_grad():
        next(other.parameters()).add_(0.01)
    assert bench(other, ("apgd-ce",), first)[1] == 1
