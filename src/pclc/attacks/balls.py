r"""The set an attack may not leave: $\{x' \in [0, 1]^d : \|x' - x\| \leq \varepsilon\}$, around every example x."""

import torch
from torch import Tensor

from pclc.attacks import random
from pclc.attacks.types import Norm


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """(N,) values as (N, 1, ...), to go with the rows of `like`."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


def row_norms(delta: Tensor, norm: Norm = "L2") -> Tensor:
    """The norm of every row, shaped to be multiplied with `delta`: (N, 1, ...)."""
    norms: Tensor = torch.linalg.vector_norm(delta.flatten(1), ord=2 if norm == "L2" else torch.inf, dim=1)
    return per_row(norms, delta)


def project(x_adv: Tensor, x: Tensor, eps: float | Tensor, norm: Norm) -> Tensor:
    """The point of the ball and the box that replaces `x_adv`; shapes (N, ...).

    Linf clamps to [max(x - eps, 0), min(x + eps, 1)], so that the bounds hold to the last bit of their rounding. L2
    scales the perturbation, then clamps, which only brings it nearer to x, because x is in the box. eps is a number, or
    (N, 1, ...), one for each example.

    Example:
        >>> project(torch.tensor([[0.9, 0.2]]), torch.tensor([[0.5, 0.1]]), eps=0.25, norm="Linf")
        tensor([[0.7500, 0.2000]])
    """
    if norm == "Linf":
        return torch.clamp(x_adv, (x - eps).clamp(min=0), (x + eps).clamp(max=1))
    delta = x_adv - x
    norms = row_norms(delta)
    scale = torch.where(norms > eps, eps / norms, 1)
    return (x + delta * scale).clamp(0, 1)


def random_step(
    x: Tensor, length: float | Tensor, norm: Norm, seed: int, index: Tensor, draw: random.Counter
) -> Tensor:
    """A random direction of a length: a number, or (N, 1, ...), one for each example."""
    shape = x.shape[1:]
    if norm == "Linf":
        direction = 2 * random.uniform(shape, seed, index, draw=draw, dtype=x.dtype) - 1
    else:
        direction = random.normal(shape, seed, index, draw=draw, dtype=x.dtype)
    return length * direction / row_norms(direction, norm).clamp(min=1e-12)  # one pixel may draw a zero


def random_point(x: Tensor, eps: float | Tensor, norm: Norm, seed: int, index: Tensor, draw: random.Counter) -> Tensor:
    """A random point around x, clamped to the box.

    Linf: uniform in the ball. L2: a uniform direction and a radius uniform in [0, eps], because nearly all of the
    volume of a ball in many dimensions lies at its surface.
    """
    shape = x.shape[1:]
    if norm == "Linf":
        delta = eps * (2 * random.uniform(shape, seed, index, draw=draw, dtype=x.dtype) - 1)
    else:
        radius = eps * random.uniform((1,) * len(shape), seed, index, step=1, draw=draw, dtype=x.dtype)
        delta = random_step(x, radius, norm, seed, index, draw)
    return project(x + delta, x, eps, norm)
