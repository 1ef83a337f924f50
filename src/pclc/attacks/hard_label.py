"""RayS: an attack that sees predicted classes only."""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.registry import register_attack
from pclc.attacks.types import Norm, Stop, keep
from pclc.attacks.validate import check_ball, check_count
from pclc.attacks.victim import Victim, is_success

_TOLERANCE = 1e-3  # of the search along a ray, in L2, as in the authors' code


class Rays(NamedTuple):
    """Where the search for each example stands; every tensor has one row per example."""

    x: Tensor  # (N, D)
    y: Tensor
    best: Tensor  # (N, D) signs: the ray that fools at the smallest radius
    radius: Tensor  # that radius, in Linf; infinite where no point has fooled yet
    ray: Tensor  # (N, D) signs: the ray that is tried
    searching: Tensor  # its radius is being halved; otherwise one point of it is checked first
    low: Tensor
    high: Tensor
    level: Tensor  # the ray differs from the best in one of 2^level blocks of signs
    block: Tensor

    def found(self) -> Tensor:
        """The nearest points that fool, (N, D)."""
        return _point(self.x, self.best, self.radius)


def _point(x: Tensor, signs: Tensor, radius: Tensor) -> Tensor:
    return (x + radius[:, None] * signs).clamp(0, 1)


def _block_size(D: int, level: Tensor) -> Tensor:
    """D / 2^level, rounded up."""
    return -(torch.full_like(level, -D) >> level)


def start(x: Tensor, y: Tensor) -> Rays:
    """The ray of minus signs is tried first: the whole of the plus signs is the block of level 0."""
    x = x.flatten(1)
    plus, zero = torch.ones_like(x), torch.zeros_like(y)
    nowhere = x.new_full((len(x),), torch.inf)
    return Rays(x, y, plus, nowhere, -plus, zero.bool(), x.new_zeros(len(x)), nowhere, zero, zero)


def ask(victim: Victim, rays: Rays, shape: torch.Size, eps: float, targeted: bool) -> Rays:
    """Spend one query on each example: a check of a new ray, or a step of the search along one."""
    D = rays.x.shape[1]
    r = torch.where(rays.searching, (rays.low + rays.high) / 2, rays.radius.clamp(max=1))
    point = _point(rays.x, rays.ray, r).reshape(-1, *shape)
    logits = victim.logits(point)
    fooled = is_success(logits, rays.y, targeted)
    # What is further away is never returned, but fp16 may have overflowed there, and what is no number is no class.
    counts = ((fooled & (r <= eps)) | logits.isnan().any(1)).nonzero().squeeze(1)
    if len(counts):
        fooled[counts] = victim.confirm(logits[counts], point[counts], rays.y[counts], targeted)
    closer = fooled & (r < rays.radius)
    radius, best = torch.where(closer, r, rays.radius), torch.where(closer[:, None], rays.ray, rays.best)
    low = torch.where(rays.searching, torch.where(fooled, rays.low, r), 0)
    high = torch.where(rays.searching & ~fooled, rays.high, r)
    over = torch.where(rays.searching, high - low <= _TOLERANCE / math.sqrt(D), ~fooled)

    last = (rays.block + 1) * _block_size(D, rays.level) >= D
    level = torch.where(over & last, rays.level + 1, rays.level)
    block = torch.where(over, torch.where(last, 0, rays.block + 1), rays.block)
    inside = torch.arange(D, device=r.device) // _block_size(D, level)[:, None] == block[:, None]
    ray = torch.where(over[:, None], torch.where(inside, -best, best), rays.ray)
    return Rays(rays.x, rays.y, best, radius, ray, ~over, low, high, level, block)


def hard_label(
    victim: Victim,
    x: Tensor,
    y: Tensor,
    *,
    eps: float,
    queries: int,
    targeted: bool,
    stop: Stop,
) -> Tensor:
    """The work of :class:`HardLabel`, without its checks: x is in [0, 1], y in [0, K)."""
    rays, x_adv = start(x, y), x.flatten(1).clone()
    place = torch.arange(len(x), device=x.device)
    for _ in range(queries):
        rays = ask(victim, rays, x.shape[1:], eps, targeted)
        if stop == "success":
            done = rays.radius <= eps
            if done.any():
                x_adv[place[done]] = keep(rays, done).found()
                place, rays = place[~done], keep(rays, ~done)
                if not len(place):
                    break
    near = rays.radius <= eps
    x_adv[place[near]] = keep(rays, near).found()
    return x_adv.reshape(x.shape)


@register_attack("hard_label")
@dataclass(frozen=True, repr=False)
class HardLabel(Attack):
    r"""RayS (Chen and Gu, KDD 2020, arXiv 2006.12792): an Linf attack that sees predicted classes only.

    $$\min_{v \in \{-1, 1\}^d}\ \min\{r : \text{the class of } \Pi_{[0, 1]}(x + r v) \text{ is wrong}\}$$

    by flipping blocks of signs: all of v, then halves, quarters and so on down to single pixels, then these again. A
    flipped ray is checked with one query at the best radius so far; only where that fools is its own radius searched,
    by bisection, to 0.001 in L2. An example is fooled when a radius of at most eps was found; otherwise x is returned.

    It needs neither gradients nor logits, so masking them does not stop it. Nothing in it is random. It is the authors'
    algorithm with two differences: an example may end in the middle of a search, when its queries are spent or its
    radius is at most eps. Examples are at different stages of their searches at the same time, so that every pass of
    the model asks one query for each example that is left.

    Queries run in the precision of crafting. Those that seem to fool within eps, or give logits that are not numbers,
    are asked again as outcomes are decided, in IEEE float32. A query close to the boundary may come out differently
    with the rounding of another batch or device, and change the rays after it: then only the statistics of outcomes
    repeat.

    Args:
        eps: radius of the ball, in Linf.
        queries: forward passes for each example, at the most.
        targeted: `y` is the class to reach.
        stop: "success" leaves an example as soon as the radius is at most eps; "never" spends all queries and returns
            the nearest example found.

    Cost: `queries` forward passes, one more for each query that fools within eps where crafting is not in float32, two
    more; no backward pass.

    Example:
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> x = torch.tensor([[0.75, 0.25]])
        >>> x_adv = HardLabel(eps=0.3, queries=40, stop="never")(model, x, torch.tensor([0]))
        >>> print(f"{(x_adv - x).abs().max():.2f}")  # the boundary is at 0.25
        0.25
    """

    norm: ClassVar[Norm] = "Linf"
    eps: float
    queries: int = 10000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, "Linf")
        check_count("queries", self.queries)

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        return hard_label(victim, x, y, **vars(self))
