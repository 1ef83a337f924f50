"""The Square attack: random search with squares, which needs logits and no gradient."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pclc.attacks import random
from pclc.attacks.attack import Attack
from pclc.attacks.objectives import Objective, directed
from pclc.attacks.registry import register_attack
from pclc.attacks.restarts import best_of
from pclc.attacks.square_moves import Draws, Moves, moves, share
from pclc.attacks.types import Norm, Stop, keep
from pclc.attacks.validate import check_ball, check_count, check_flag, check_number, check_share
from pclc.attacks.victim import Victim, is_success

_QUERIES_A_DRAW = 64
_QUERIES_A_LOOK = 8
_SCHEDULE = 10_000  # queries for which the halvings were chosen


def random_search(
    victim: Victim,
    x: Tensor,
    y: Tensor,
    seed: int,
    index: Tensor,
    attempt: int,
    *,
    by: Moves,
    queries: int,
    schedule: int,
    p_init: float,
    goal: Objective,
    targeted: bool,
    stop: Stop,
) -> Tensor:
    """Keep what raises the goal, of a start and `queries` proposals; one forward pass for each, all rows together."""
    shape = x.shape[1:]
    x = _as_images(x)
    place, x_adv = torch.arange(len(x), device=x.device), torch.empty_like(x)
    x_new = by.start(x, seed, index, attempt)
    x_best, best = x_new.clone(), x.new_full((len(x),), -torch.inf)
    fooled = torch.zeros_like(y, dtype=torch.bool)  # by the logits of crafting, since the last look
    sides = [by.side(share(query, schedule, p_init)) for query in range(queries)]
    draws: Draws = ()
    asked: Tensor | slice = slice(None)  # rows of this query
    for query in range(-1, queries):  # -1 asks for the start
        if query >= 0:
            turn = query % _QUERIES_A_DRAW
            if turn == 0:
                draws = _draw(by, sides[query : query + _QUERIES_A_DRAW], seed, index, query, attempt, x.dtype)
            x_new = by.propose(x, x_best, sides[query], tuple(numbers[turn] for numbers in draws))
            if by.repeats and not x.is_cuda:  # a device waits longer than it would work
                asked = (x_new != x_best).flatten(1).any(1).nonzero().squeeze(1)
                if not len(asked):
                    continue
        tried, goals = x_new[asked], y[asked]
        logits = victim.logits(tried.reshape(-1, *shape))
        value = goal(logits, goals).to(x.dtype)
        better = value > best[asked]
        if stop == "success":  # a point that fools is kept until it is looked at
            hit = is_success(logits, goals, targeted)
            better = (better | hit) & ~fooled[asked]
            fooled[asked] |= hit
        x_best[asked] = torch.where(better[:, None, None, None], tried, x_best[asked])
        best[asked] = torch.where(better, value, best[asked])
        # Rows that were fooled leave; the device has to be waited for to see them, so not after every query.
        if stop == "success" and (query < _QUERIES_A_LOOK or query % _QUERIES_A_LOOK == 0):
            hits = fooled.nonzero().squeeze(1)
            if len(hits):
                fooled[hits] = victim.is_fooled(x_best[hits].reshape(-1, *shape), y[hits], targeted)
                best[hits] = torch.where(best[hits].isfinite(), best[hits], -torch.inf)  # fp16 may have overflowed
                x_adv[place] = x_best
                left = (~fooled).nonzero().squeeze(1)
                if not len(left):
                    return x_adv.reshape(-1, *shape)
                x, y, index, place, x_best, best, fooled = keep((x, y, index, place, x_best, best, fooled), left)
                draws = tuple(numbers[:, left] for numbers in draws)
    x_adv[place] = x_best
    return x_adv.reshape(-1, *shape)


def _as_images(x: Tensor) -> Tensor:
    """(N, C, H, W): a vector is an image of one row, a third dimension is rows, further ones are channels."""
    height = x.shape[-2] if x.dim() > 2 else 1
    return x.reshape(len(x), -1, height, x.shape[-1])


def _draw(by: Moves, sides: list[int], seed: int, index: Tensor, query: int, attempt: int, dtype: torch.dtype) -> Draws:
    """What the next queries need of random numbers: (Q, N, ...) for as many as there are sides."""
    u = random.uniform((_QUERIES_A_DRAW, by.numbers), seed, index, step=1 + query, draw=attempt, dtype=dtype)
    side = torch.tensor(sides, device=u.device)[:, None]
    return by.draw(u.transpose(0, 1)[: len(sides)].contiguous(), side)


@register_attack("square")
@dataclass(frozen=True, repr=False)
class Square(Attack):
    r"""The Square attack (Andriushchenko et al., ECCV 2020, arXiv 1912.00049).

    A random search: $x' \leftarrow x''$ where $L(x'', y) > L(x', y)$. In Linf the start is
    $x \pm \varepsilon$ in vertical stripes, and $x''$ is $x'$ with a square at a random place set to
    $x \pm \varepsilon$, the sign at random for each channel. In L2 the start is a grid of bumps of norm eps, and $x''$
    has a new bump in one window, paid for with the perturbation of another. Both are clamped to the box. A square
    covers the share p of the pixels, at first `p_init`, halved after 0.1, 0.5, 2, 5, 10, 20, 40, 60 and 80 % of the
    queries, or of 10,000 with rescale=False, which is how AutoAttack uses it.

    It needs no gradient of the model. Places, signs and bumps are drawn for each example; AutoAttack's code draws
    places and bumps, and in Linf signs, once for the batch. A place is uniform and rounded to pixels, so that squares
    touch a border half as often as they take any other place; the paper makes no difference, and in AutoAttack's code
    they never touch the last row and column. In an image that is not square, a window too long for one side is cut to
    it; vectors (N, D) are images of one row.

    Args:
        eps: radius of the ball.
        queries: proposals, besides the start.
        norm: "Linf" or "L2".
        p_init: share of the pixels that the first squares cover, in (0, 1].
        rescale: spread the halvings of p over `queries`; otherwise they are those of 10,000 queries.
        restarts: attempts, each with other random numbers. An attempt that fools is kept; where none does, and with
            stop="never", the last iterate of the largest objective (those that fool first).
        objective: what is maximised, a registered name with an optional logit scale. The paper has "ce" for targeted
            attacks.
        targeted: `y` is the class to reach.
        stop: "success" or "never", see `Attack`.

    Cost: `restarts * (queries + 1)` forward passes, one more a restart where there are several, two more; no backward
    pass.

    Example:
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> x, y = torch.tensor([[0.75, 0.25]]), torch.tensor([0])  # the boundary is at 0.25
        >>> Square(eps=0.3, queries=20).run(model, x, y).success, Square(eps=0.2, queries=20).run(model, x, y).success
        (tensor([True]), tensor([False]))
    """

    eps: float
    queries: int = 5000
    norm: Norm = "Linf"
    p_init: float = 0.8
    rescale: bool = True
    restarts: int = 1
    objective: str = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        check_count("queries", self.queries)
        check_number("p_init", self.p_init, positive=True)
        check_share("p_init", self.p_init)
        check_flag("rescale", self.rescale)
        check_count("restarts", self.restarts)
        directed(self.objective, self.targeted)

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        goal = directed(self.objective, self.targeted)
        C, H, W = _as_images(x).shape[1:]
        by = moves(self.norm, self.eps, (C, H, W))

        schedule = self.queries if self.rescale else _SCHEDULE
        settings = {name: getattr(self, name) for name in ("queries", "p_init", "targeted", "stop")}

        def attempt(number: int, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
            return random_search(victim, x, y, seed, index, number, by=by, schedule=schedule, goal=goal, **settings)

        return best_of(
            self.restarts, attempt, victim, x, y, index, objective=goal, targeted=self.targeted, stop=self.stop
        )
