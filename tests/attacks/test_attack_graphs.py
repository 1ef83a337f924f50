"""Attacks on CUDA: graphs, precisions and compilation change the speed and nothing else."""

import random

import pytest
import torch
from attack_zoo import SmallNet, digits, examples

from pclc import Execution
from pclc.attacks import MIM, PGD, CarliniWagner
from pclc.attacks.decide import is_fooled

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore::pclc.attacks.AttackWarning")]

ATTACKS = [
    PGD(eps=0.1, alpha=0.02, steps=12, restarts=2),
    PGD(eps=0.1, alpha=0.02, steps=12, stop="never"),
    MIM(eps=0.1, alpha=0.02, steps=12, stop="never"),
    CarliniWagner(steps=20, search_steps=3),
]


def on_cuda():
    model, x, y = digits()
    return model.cuda(), x.cuda(), y.cuda()


@pytest.fixture(autouse=True)
def _model_back_to_the_cpu():
    yield
    digits()[0].cpu()


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
@pytest.mark.parametrize("batch_size", [50, 360])
def test_graphs_change_nothing(attack, batch_size):
    """Batches of 50 make buckets of many sizes as rows are dropped."""
    model, x, y = on_cuda()
    results = [
        attack.run(model, x, y, execution=Execution(precision="fp32", cuda_graphs=graphs, batch_size=batch_size))
        for graphs in (False, True)
    ]
    assert (results[0].success != results[1].success).sum() <= 1
    assert results[0].success.sum() > 20


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("compiled", [None, True])
def test_fast_crafting_reaches_what_float32_reaches(precision, compiled):
    model, x, y = on_cuda()
    attack = PGD(eps=0.1, alpha=0.02, steps=12)
    exact = attack.run(model, x, y, execution=Execution(precision="fp32", cuda_graphs=False)).success
    fast = attack.run(model, x, y, execution=Execution(precision=precision, compile=compiled))
    assert abs(int(exact.sum() - fast.success.sum())) <= 2
    assert torch.equal(fast.success, is_fooled(model, fast.x_adv, y))


def test_a_model_with_random_numbers_of_its_own_is_not_frozen_into_a_graph():
    model = SmallNet().eval().cuda()
    x, y = (tensor.cuda() for tensor in examples(SmallNet().eval(), 40, dtype=torch.float32))
    draws = []

    def noisy(x):
        draws.append(random.random())
        return model(x) * (1 + draws[-1])

    PGD(eps=0.1, alpha=0.02, steps=20, stop="never")(noisy, x, y)
    assert len(draws) > 20, "one draw a step, and none replayed"


def test_a_model_that_asks_the_host_runs_eagerly_and_says_so():
    model = SmallNet().eval().cuda()
    x, y = (tensor.cuda() for tensor in examples(SmallNet().eval(), 40, dtype=torch.float32))
    with pytest.warns(UserWarning, match="cannot be captured"):
        result = PGD(eps=0.1, alpha=0.02, steps=10).run(lambda x: model(x) * float(x.max() > -1), x, y)
    assert result.success.sum() > 2
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_graphs_give_their_memory_back():
    model, x, y = on_cuda()
    attack = PGD(eps=0.1, alpha=0.02, steps=8, stop="never")
    attack(model, x, y)
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        attack(model, x, y)
    assert torch.cuda.memory_allocated() <= before + 2**20
