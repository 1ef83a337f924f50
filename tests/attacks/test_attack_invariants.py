"""What holds for every attack, from one table (`attack_zoo.ZOO`)."""

import copy

import pytest
import torch
from attack_zoo import CLASSES, ZOO, Scaled, SmallNet, examples, linear

pytestmark = pytest.mark.filterwarnings("ignore::pclc.attacks.AttackWarning")
EVERY = pytest.mark.parametrize("entry", ZOO.values(), ids=ZOO.keys())
BOTH_GOALS = pytest.mark.parametrize(
    ("entry", "targeted"),
    [
        pytest.param(entry, targeted, id=f"{name}-{'targeted' if targeted else 'untargeted'}")
        for name, entry in ZOO.items()
        for targeted in (False, True)
        if not (targeted and entry.untargeted)
    ],
)
WITH_EPS = pytest.mark.parametrize(
    "entry",
    [entry for entry in ZOO.values() if entry.eps is not None],
    ids=[name for name, entry in ZOO.items() if entry.eps is not None],
)


def net():
    return SmallNet().double().eval()


def for_float32(attack):
    if hasattr(attack, "substitute"):
        attack.substitute.float()
    return attack


def goals(y, targeted):
    return (y + 1) % CLASSES if targeted else y


@BOTH_GOALS
@pytest.mark.parametrize("stop", ["success", "never"])
def test_budget_and_box(entry, stop, targeted):
    model = SmallNet().eval()
    x, y = examples(model, dtype=torch.float32)
    result = for_float32(entry(stop=stop, targeted=targeted)).run(model, x, goals(y, targeted))
    x_adv = result.x_adv
    assert x_adv.shape == x.shape
    assert x_adv.dtype == x.dtype
    assert not x_adv.requires_grad
    assert ((x_adv >= 0) & (x_adv <= 1)).all()
    if entry.eps is not None and entry.norm == "Linf":
        assert (x_adv - x).abs().max() <= entry.eps + 6e-8
    elif entry.eps is not None:
        assert (x_adv - x).flatten(1).norm(dim=1).max() <= entry.eps + 1e-6
    # In float64, which decides near ties: FAB ends next to the boundary, where float32 says what the CPU's kernels say.
    predicted = model.double()(x_adv.double()).argmax(1)
    expected = predicted == goals(y, targeted) if targeted else predicted != y
    assert torch.equal(result.success, expected)


@EVERY
def test_attacks_do_attack(entry):
    """The table's budgets are such that attacks fool some examples and not all, or nothing here would be tested."""
    model = net()
    x, y = examples(model, 40)
    fooled = entry().run(model, x, y).success
    assert fooled.sum() > 2, "more than the two wrong labels"
    assert entry.eps is None or not fooled.all()


@EVERY
@pytest.mark.parametrize("stop", ["success", "never"])
def test_batch_size_and_order_change_nothing(entry, stop):
    model = net()
    x, y = examples(model)
    index = torch.arange(100, 100 + len(x))
    attack = entry(stop=stop)
    together = attack.run(model, x, y, seed=5, index=index)
    for one in (0, 3, 7):
        alone = attack.run(model, x[one : one + 1], y[one : one + 1], seed=5, index=index[one : one + 1])
        assert alone.success == together.success[one]
        torch.testing.assert_close(alone.x_adv[0], together.x_adv[one])
    order = torch.randperm(len(x))
    permuted = attack.run(model, x[order], y[order], seed=5, index=index[order])
    assert torch.equal(permuted.success, together.success[order])
    torch.testing.assert_close(permuted.x_adv, together.x_adv[order])


@EVERY
@pytest.mark.parametrize("shift", [100.0, -100.0])
def test_logits_shifted_by_a_constant_change_nothing(entry, shift):
    model = net()
    x, y = examples(model)
    assert torch.equal(entry().run(Scaled(model, shift=shift), x, y).success, entry().run(model, x, y).success)


@WITH_EPS
@pytest.mark.parametrize("stop", ["success", "never"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_eps_zero_returns_the_input(entry, stop, dtype):
    model = SmallNet().to(dtype).eval()
    x, y = examples(model, dtype=dtype)
    attack = entry(eps=0, stop=stop)
    if dtype == torch.float32:
        for_float32(attack)
    assert torch.equal(attack(model, x, y), x)


@EVERY
@pytest.mark.parametrize("stop", ["success", "never"])
def test_the_model_and_the_inputs_come_back_as_they_were(entry, stop):
    model = net().train()
    model.norm.eval()
    for number, parameter in enumerate(model.parameters()):
        if number % 2 and parameter.requires_grad:
            parameter.grad = torch.randn_like(parameter)
    x, y = examples(copy.deepcopy(model))
    modes = [module.training for module in model.modules()]
    assert len(set(modes)) == 2
    wanted = [parameter.requires_grad for parameter in model.parameters()]
    grads = [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()]
    held = [parameter.grad for parameter in model.parameters()]
    state = copy.deepcopy(model.state_dict())
    attack = entry(stop=stop)
    x_before, y_before, generator = x.clone(), y.clone(), torch.random.get_rng_state()

    attack(model, x, y)

    assert [module.training for module in model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.parameters()] == wanted
    for parameter, grad, tensor in zip(model.parameters(), grads, held, strict=True):
        assert parameter.grad is tensor
        assert grad is None or torch.equal(parameter.grad, grad)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert torch.equal(x, x_before)
    assert torch.equal(y, y_before)
    assert torch.equal(torch.random.get_rng_state(), generator)


@EVERY
def test_a_model_in_training_mode_is_attacked_in_eval_mode(entry):
    model = net()
    x, y = examples(model)
    expected = entry()(model, x, y)
    assert torch.equal(entry()(model.train(), x, y), expected)


@EVERY
def test_the_seed_decides(entry):
    model = net()
    x, y = examples(model)
    attack = entry(stop="never")
    first = attack(model, x, y, seed=1)
    torch.manual_seed(99)
    assert torch.equal(attack(model, x, y, seed=1), first)
    assert torch.equal(attack(model, x, y, seed=2), first) != entry.random
    shifted = attack(model, x, y, seed=1, index=torch.arange(7, 7 + len(x)))
    assert torch.equal(shifted, first) != entry.random


@WITH_EPS
def test_more_eps_fools_more_on_linear_models(entry):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 36, generator=generator, dtype=torch.float64)
    weight[2:] = 0  # a third and a fourth class, which DLR needs, out of reach
    x = 0.5 + 0.05 * (torch.rand(40, 1, 6, 6, generator=generator, dtype=torch.float64) - 0.5)
    model = linear(weight, -weight.sum(1) / 2 - torch.tensor([0, 0, 100, 100]))
    y = model(x).argmax(1)
    fooled = torch.zeros(len(x), dtype=torch.bool)
    counts = []
    for factor in (0.01, 0.03, 0.1, 0.3):
        attack = entry(eps=factor * entry.eps)
        now = attack.run(model, x, y).success
        assert (now | ~fooled).all(), "what a smaller eps fools a larger one does"
        fooled = now
        counts.append(int(now.sum()))
    assert counts[-1] > counts[0]


@BOTH_GOALS
def test_stop_modes(entry, targeted):
    model = net()
    x, y = examples(model, 40)
    y = goals(y, targeted)
    early = entry(stop="success", targeted=targeted).run(model, x, y)
    full = entry(stop="never", targeted=targeted).run(model, x, y)
    assert (early.success | ~full.success).all(), 'what "never" fools "success" does'
    predicted = model(x).argmax(1)
    already = predicted == y if targeted else predicted != y
    assert already.any()
    assert torch.equal(early.x_adv[already], x[already])
    # An example that is never fooled takes the same way in both modes.
    torch.testing.assert_close(early.x_adv[~early.success], full.x_adv[~early.success])
    assert early.forwards <= full.forwards
    assert early.backwards <= full.backwards


@EVERY
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_where_gradients_are_off(entry, context):
    model = net()
    x, y = examples(model)
    attack = entry()
    expected = attack(model, x, y)
    with context():
        assert torch.equal(attack(model, x.clone(), y.clone()), expected)


@EVERY
def test_the_default_type_changes_nothing(entry):
    model = SmallNet().eval()
    x, y = examples(model, dtype=torch.float32)
    attack = for_float32(entry())
    expected = attack(model, x, y)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(attack(model, x, y), expected)
    finally:
        torch.set_default_dtype(torch.float32)


@EVERY
@pytest.mark.parametrize("shape", [(0, 1, 6, 6), (1, 1, 6, 6)])
def test_small_batches(entry, shape):
    result = entry().run(net(), torch.rand(shape, dtype=torch.float64), torch.zeros(shape[0], dtype=torch.long))
    assert result.x_adv.shape == shape
    assert result.success.shape == shape[:1]


@EVERY
def test_settings_are_values(entry):
    """Printable, comparable, hashable; the transfer's substitute counts by identity."""
    attack = entry()
    assert hash(attack) == hash(copy.copy(attack))
    assert attack == copy.copy(attack)
    assert attack != entry(stop="never")
    with pytest.raises(AttributeError):
        attack.stop = "never"
    assert repr(attack).startswith(type(attack).__name__) or "transfer(" in repr(attack)


OTHERWISE = {
    "pgd": {"alpha": 0.02, "steps": 7, "random_start": False, "restarts": 2, "objective": "margin"},
    "mim-l2": {"alpha": 0.02, "steps": 7, "decay": 0.5, "objective": "margin"},
    "spsa": {"lr": 0.02, "delta": 0.1, "steps": 4, "samples": 9, "objective": "ce"},
    "noise": {"draws": 1},
    "cw": {"confidence": 1.0, "lr": 0.02, "steps": 20, "search_steps": 3, "initial_const": 2.0, "space": "pixel"},
    "ddn": {"steps": 11, "init_norm": 0.5, "gamma": 0.1, "levels": 16},
    "apgd": {"steps": 7, "restarts": 2, "objective": "dlr", "rho": 1.0},
    "apgd-t": {"steps": 5, "targets": 1, "restarts": 2, "rho": 1.0},
    "fab": {"steps": 7, "targets": 1, "alpha_max": 0.0, "eta": 1.2, "beta": 0.5},
    "square": {"queries": 60, "p_init": 0.1, "rescale": False, "restarts": 2, "objective": "ce"},
    "md-l2": {"steps": 7, "switch": 0.2, "restarts": 4},
    "probability-margin-l2": {"steps": 7, "switch": 0.2, "restarts": 4, "logit_scale": 0.1},
    "hard-label": {"queries": 30},
}


@pytest.mark.parametrize(("name", "setting"), [(name, setting) for name, some in OTHERWISE.items() for setting in some])
def test_every_setting_counts(name, setting):
    """One that is not handed on makes an attack weaker than it says."""
    model = net()
    x, y = examples(model, 40)
    usual, other = (ZOO[name](stop="never", **settings) for settings in ({}, {setting: OTHERWISE[name][setting]}))
    assert not torch.equal(usual(model, x, y), other(model, x, y))
