"""The fast adaptive boundary attack, targeted: the nearest example that fools, from linear models of the boundary."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pclc.attacks.apgd_targeted import likely_classes
from pclc.attacks.attack import Attack
from pclc.attacks.balls import random_step, row_norms
from pclc.attacks.objectives import directed, of_class
from pclc.attacks.projections import step_to_hyperplane
from pclc.attacks.registry import register_attack
from pclc.attacks.types import Norm, Stop
from pclc.attacks.validate import check_ball, check_count, check_number, check_share
from pclc.attacks.victim import Victim, is_success

# Rows are worked off so many numbers at a time, which bounds the memory of the copies that every target needs.
_NUMBERS_A_PASS = 2**24
# Restarts need a radius also where no eps is given.
_START = {"Linf": 0.3, "L2": 1.0}


def _lead(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """z_t - z_y."""
    return of_class(logits, target) - of_class(logits, y)


def towards_boundary(
    x_adv: Tensor, x: Tensor, value: Tensor, grad: Tensor, norm: Norm, alpha_max: float, eta: float
) -> Tensor:
    r"""One step: beyond the boundary of the linear model at $x'$, biased to x; all (N, d), `value` (N,).

    With $\delta$ and $\delta_0$ the smallest steps from $x'$ and from x to the hyperplane
    $f(x') + \nabla f(x') \cdot (z - x') = 0$ inside the box, $\alpha = \min(|\delta| / (|\delta| + |\delta_0|),
    \alpha_{\max})$:
    $$x' \leftarrow (1 - \alpha)(x' + \eta\,\delta) + \alpha\,(x + \eta\,\delta_0).$$
    """
    both = torch.stack([x_adv, x])
    gaps = torch.stack([value, value + (grad * (x - x_adv)).sum(1)])
    steps = step_to_hyperplane(both, grad, gaps, norm)
    near, far = (row_norms(step, norm).clamp(min=1e-8) for step in steps)
    alpha = (near / (near + far)).clamp(max=alpha_max)
    ahead, biased = both + eta * steps
    return torch.lerp(ahead, biased, alpha).clamp(0, 1)


def fab(
    victim: Victim,
    x: Tensor,
    y: Tensor,
    seed: int,
    index: Tensor,
    *,
    eps: float | None,
    steps: int,
    targets: int,
    norm: Norm,
    alpha_max: float,
    eta: float,
    beta: float,
    restarts: int,
    targeted: bool,
    stop: Stop,
) -> Tensor:
    """The work of :class:`FAB`, without its checks: x is in [0, 1], y in [0, K)."""
    logits = victim.logits(x)
    limit, early = (torch.inf if eps is None else eps), stop == "success" and eps is not None
    lead: Callable[..., Tensor] = directed("margin", targeted) if targeted else _lead
    classes = y[:, None] if targeted else likely_classes(logits, y, targets)
    best = x.clone()
    best_norm = torch.where(victim.confirm(logits, x, y, targeted), 0, torch.inf).to(x.dtype)

    def search(rows: Tensor, columns: range, attempt: int) -> None:
        """Follow the boundaries to some classes from the rows, and keep what is nearer than the best so far."""
        C = len(columns)
        centre = x[rows].flatten(1).repeat_interleave(C, 0)
        target, goal = classes[rows][:, columns.start : columns.stop].flatten(), y[rows].repeat_interleave(C)
        x_adv = centre
        if attempt > 0:
            draw = attempt * targets + torch.arange(columns.start, columns.stop, device=x.device).repeat(len(rows))
            radius = best_norm[rows].clamp(max=_START[norm] if eps is None else eps).repeat_interleave(C)
            x_adv = _start(centre, radius, norm, seed, index[rows].repeat_interleave(C), draw)
        for _ in range(steps):
            given = (goal,) if targeted else (goal, target)
            slope = victim.gradient(lead, x_adv.reshape(-1, *x.shape[1:]), *given)
            value = slope.value.to(x.dtype)  # a model may give other logits than its images are
            x_adv = towards_boundary(x_adv, centre, value, slope.grad.flatten(1), norm, alpha_max, eta)
            logits = victim.logits(x_adv.reshape(-1, *x.shape[1:]))
            fooled = is_success(logits, goal, targeted)
            lengths = row_norms(x_adv - centre, norm).squeeze(1)
            closer = fooled & (lengths <= limit) & (lengths < best_norm[rows].repeat_interleave(C))
            hits = closer.nonzero().squeeze(1)
            if len(hits):
                images = x_adv[hits].reshape(-1, *x.shape[1:])
                hits = hits[victim.confirm(logits[hits], images, goal[hits], targeted)]
                found = torch.full_like(lengths, torch.inf).index_copy(0, hits, lengths[hits])
                nearest, which = found.reshape(-1, C).min(1)
                new = nearest.isfinite().nonzero().squeeze(1)
                best[rows[new]] = x_adv[new * C + which[new]].reshape(-1, *x.shape[1:])
                best_norm[rows[new]] = nearest[new]
            x_adv = torch.where(fooled[:, None], torch.lerp(centre, x_adv, beta), x_adv)
            if early and len(hits):
                left = nearest.isinf()
                rows, kept = rows[left], left.repeat_interleave(C)
                centre, target, goal, x_adv = centre[kept], target[kept], goal[kept], x_adv[kept]
                if not len(rows):
                    return

    # The nearest class fools most; the others share one batch, which a device needs to be busy with what is left.
    T = classes.shape[1]
    groups = [range(1), range(1, T)] if T > 1 else [range(1)]
    for attempt in range(restarts):
        for columns in groups:
            todo = (best_norm.isinf() if early else best_norm > 0).nonzero().squeeze(1)
            if len(todo):
                for rows in torch.split(todo, max(1, _NUMBERS_A_PASS // (len(columns) * x[0].numel()))):
                    search(rows, columns, attempt)
    return best


def _start(x: Tensor, radius: Tensor, norm: Norm, seed: int, index: Tensor, draw: Tensor) -> Tensor:
    """A random point of the box, at half the radius around x before it is clamped; (N, d)."""
    return (x + random_step(x, radius[:, None] / 2, norm, seed, index, draw)).clamp(0, 1)


@register_attack("fab")
@dataclass(frozen=True, repr=False)
class FAB(Attack):
    r"""The fast adaptive boundary attack, targeted: FAB-T (Croce and Hein, ICML 2020, arXiv 1907.02044 and 2003.01690).

    For each class t of the `targets` largest logits other than $z_y$ it follows the boundary
    $f(x') = z_t(x') - z_y(x') = 0$: with $\delta$ and $\delta_0$ the smallest steps from $x'$ and from x to the
    hyperplane $f(x') + \nabla f(x') \cdot (z - x') = 0$ inside the box,

    $$x' \leftarrow (1 - \alpha)(x' + \eta\,\delta) + \alpha\,(x + \eta\,\delta_0), \qquad
    \alpha = \min\Big(\frac{|\delta|}{|\delta| + |\delta_0|}, \alpha_{\max}\Big),$$

    and where that fools, it is kept if it is the nearest so far, and $x' \leftarrow x + \beta (x' - x)$. Success is an
    example that fools within eps; where none was found, x itself is returned. The first attempt is not random. A
    constant factor on the logits changes nothing.

    The algorithm is that of AutoAttack, without two flaws of its code: its L2 projection drops entries of the gradient
    below 1e-8, whatever the scale of the logits, and its restarts ignore the nearest example of earlier attempts.

    Args:
        eps: radius of the ball; None: the nearest example that fools is wanted, whatever its distance.
        steps: number of steps for each class.
        targets: number of classes, at most K - 1.
        norm: "Linf" or "L2".
        alpha_max: largest weight of the step from x.
        eta: overshoot; 1 ends on the boundary of the linear model.
        beta: how far an example that fools is taken back to x; 1 leaves it.
        restarts: attempts, the second and later ones from random points at half of eps (half the distance of the best
            so far where that is less; where no eps is given, of 0.3 in Linf and 1 in L2).
        targeted: `y` is the class to reach, and $f = z_y - \max_{k \neq y} z_k$; `targets` is not used.
        stop: "success" leaves an example as soon as one within eps is found; "never", and an eps of None, go on to the
            end for the nearest one. Either way it is at most eps from x.

    Cost: `restarts * targets * steps` backward and twice as many forward passes, three more forward passes.

    Example:
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> x, y = torch.tensor([[0.75, 0.25]]), torch.tensor([0])  # the boundary is at 0.25
        >>> FAB(eps=0.3).run(model, x, y).success, FAB(eps=0.2).run(model, x, y).success
        (tensor([True]), tensor([False]))
        >>> print(f"{(FAB()(model, x, y) - x).abs().max():.2f}")
        0.25
    """

    eps: float | None = None
    steps: int = 100
    targets: int = 9
    norm: Norm = "Linf"
    alpha_max: float = 0.1
    eta: float = 1.05
    beta: float = 0.9
    restarts: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(0 if self.eps is None else self.eps, self.norm)
        check_count("steps", self.steps)
        check_count("targets", self.targets)
        check_share("alpha_max", self.alpha_max)
        check_share("beta", self.beta)
        check_number("eta", self.eta)
        if self.eta < 1:
            raise ValueError(f"Expected `eta` to be at least 1, but got {self.eta!r}.")
        check_count("restarts", self.restarts)

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        return fab(victim, x, y, seed, index, **vars(self))
