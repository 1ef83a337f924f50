"""Whether an example is fooled is decided by an exact forward pass, whatever crafting runs in."""

import pytest
import torch
from attack_zoo import SmallNet, examples

from pclc.attacks import BIM, CarliniWagner
from pclc.attacks.cost import Cost
from pclc.attacks.decide import fooled

Y = torch.tensor([0, 0, 0])
EXACT = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])  # only the first is fooled
FAST = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])  # a fast pass says the second is, too


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_a_fast_pass_nominates_an_exact_pass_decides(dtype):
    asked = []

    def model(x):
        asked.append(x.flatten().tolist())
        return EXACT[x.flatten().long()]

    cost = Cost()
    x = torch.arange(3.0)[:, None]
    assert fooled(model, x, Y, FAST.to(dtype), False, cost).tolist() == [True, False, False]
    assert asked == [[0, 1]], "only what was nominated"
    assert cost.forwards == 2


def test_exact_logits_decide_by_themselves():
    cost = Cost()
    assert fooled(None, torch.zeros(3, 1), Y, FAST, False, cost).tolist() == [True, True, False]
    assert fooled(None, torch.zeros(3, 1), Y, FAST, True, cost).tolist() == [False, False, True]
    assert cost.forwards == 0


@pytest.mark.parametrize("attack", [BIM(eps=0.1, alpha=0.02, steps=8), CarliniWagner(steps=25, search_steps=3)])
def test_autocast_does_not_decide(attack):
    model = SmallNet().eval()
    x, y = examples(model, 40, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = attack.run(model, x, y)
    assert result.x_adv.dtype == torch.float32
    assert torch.equal(result.success, model(result.x_adv).argmax(1) != y)
    assert result.success.sum() > 2
    if isinstance(attack, CarliniWagner):  # it returns x where nothing fools, and nothing else that does not
        assert torch.equal(result.x_adv[~result.success], x[~result.success])


@pytest.mark.cuda
def test_tf32_does_not_decide():
    model = SmallNet().eval().cuda()
    x, y = (tensor.cuda() for tensor in examples(SmallNet().eval(), 40, dtype=torch.float32))
    result = BIM(eps=0.1, alpha=0.02, steps=8).run(model, x, y)
    exact = model.double()(result.x_adv.double())
    clear = exact.topk(2, dim=1).values.diff(dim=1).abs().squeeze(1) > 1e-4
    assert torch.equal(result.success[clear], (exact.argmax(1) != y)[clear])
