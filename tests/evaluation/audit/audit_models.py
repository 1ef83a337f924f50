"""Models in which one thing is wrong, each with a known answer."""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Case(NamedTuple):
    """A model and examples, as the fixture of that name has them."""

    model: nn.Module
    x: Tensor
    y: Tensor


class Line(nn.Module):
    """Two classes on one pixel: the lead of the false class is a given function of u = (x - 0.5) / eps."""

    def __init__(self, lead, eps: float = 0.1) -> None:
        super().__init__()
        self.lead, self.eps = lead, eps

    def forward(self, x: Tensor) -> Tensor:
        lead = self.lead((x[:, 0] - 0.5) / self.eps)
        return torch.stack([torch.zeros_like(lead), lead], 1)


class Angle(nn.Module):
    """Two classes on two pixels: what is wanted lies far around a point near the middle, with the slope that way."""

    def forward(self, x: Tensor) -> Tensor:
        lead = torch.atan2(x[:, 1] - 0.51, x[:, 0] - 0.55) - 2.5
        return torch.stack([torch.zeros_like(lead), lead], 1)


class Cut(nn.Module):
    """No module at which the gradient could be mended."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    def forward(self, x: Tensor) -> Tensor:
        return x.detach() @ self.weight


class Sine(nn.Module):
    """Features that turn so fast that a gradient says nothing about the next point."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(3e3 * x)


class Mixing(nn.Module):
    """Takes the mean over the batch away from the logits, or a share of it."""

    def __init__(self, model: nn.Module, share: float = 1.0) -> None:
        super().__init__()
        self.model, self.share = model, share

    def forward(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        return logits - self.share * logits.mean(0)


class Remembering(nn.Module):
    """Gives an image that is near to an earlier one the answer of that one, with the gradient that is due to it."""

    def __init__(self, model: nn.Module, radius: float = 1.5) -> None:
        super().__init__()
        self.model, self.radius = model, radius
        self.images, self.answers = torch.empty(0), torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        logits, flat = self.model(x), x.detach().flatten(1)
        given, new = logits, torch.ones(len(x), dtype=torch.bool)
        if len(self.images):
            away, nearest = torch.cdist(flat, self.images).min(1)
            new = away > self.radius
            given = logits + torch.where(new[:, None], 0, self.answers[nearest] - logits.detach())
        self.images = torch.cat([self.images, flat[new]])
        self.answers = torch.cat([self.answers, logits.detach()[new]])
        return given


def points(n: int = 64) -> tuple[Tensor, Tensor]:
    """One pixel at the middle, of class 0."""
    return torch.full((n, 1), 0.5), torch.zeros(n, dtype=torch.int64)
