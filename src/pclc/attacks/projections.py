r"""The nearest point of the box that lies on a hyperplane, exactly, for many points at once."""

import torch
from torch import Tensor

from pclc.attacks.types import Norm

_STEPS_A_LOOK = 3  # of Newton's method, between two looks at whether it has ended, for which a device has to be waited


def step_to_hyperplane(x: Tensor, w: Tensor, gap: Tensor, norm: Norm) -> Tensor:
    r"""The smallest $\delta$ with $w \cdot \delta = -g$ and $x + \delta \in [0, 1]^d$; shapes (..., d).

    Where no point of the box is on the hyperplane, the step to the corner that comes nearest to it. With
    $s = \operatorname{sign}(g\, w)$ and the room $r$ that the box leaves against s, the optimum is
    $\delta = -s \min(r, \lambda)$ in Linf and $-s \min(r, \lambda |w|)$ in L2. What it takes off the gap is increasing,
    concave and piecewise linear in $\lambda$, so that Newton's method from $\lambda = 0$ climbs to the root without
    passing it, and ends there after finitely many steps, a handful as a rule; nothing is sorted.

    Args:
        x: points of the box.
        w: normals of the hyperplanes, of any size; a normal of zero gives a step of zero.
        gap: (...), $g = w \cdot x - b$ for the hyperplane $w \cdot x = b$.
        norm: whose length the step makes small.

    Example:
        >>> x, w = torch.tensor([[0.5, 0.1]]), torch.tensor([[1.0, 1.0]])
        >>> step_to_hyperplane(x, w, torch.tensor([0.4]), norm="Linf")
        tensor([[-0.3000, -0.1000]])
    """
    largest = w.abs().amax(-1, keepdim=True)
    gap = gap.nan_to_num(0.0).unsqueeze(-1)
    scale = torch.where(largest > 0, largest, 1) * torch.where(gap < 0, -1, 1)
    against, gap = w / scale, (gap / scale).abs()
    # Products with masks instead of torch.where: without branches they are several times as fast on the CPU.
    room = (x - (against < 0).to(x.dtype)).abs()
    pull = against.abs()
    # An entry is free until the level reaches its end; then it is at the side of the box.
    end, slope = (room, pull) if norm == "Linf" else (room / pull, pull.square())
    taken = pull * room
    most = torch.finfo(x.dtype).max
    level, total = torch.zeros_like(gap), torch.full_like(gap, -1)
    while True:
        for _ in range(_STEPS_A_LOOK):
            free, before = (end > level).to(x.dtype), total
            total = (slope * free).sum(-1, keepdim=True)
            rest = gap - (taken * (1 - free)).sum(-1, keepdim=True)
            level = torch.where(total > 0, rest / total, most).clamp(max=most).maximum(level)
        if torch.equal(total, before):  # entries are only ever lost, so the same slope is the same piece
            break
    return -against.sign() * torch.minimum(level if norm == "Linf" else level * pull, room)
