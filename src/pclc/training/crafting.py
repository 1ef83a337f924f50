"""Adversarial examples inside a training step: the loop of the attacks, without anything that waits for the device."""

from functools import partial

from torch import Tensor

from pclc.attacks import random
from pclc.attacks.balls import project, random_point
from pclc.attacks.loop import Rows, autograd_gradient, make_step
from pclc.attacks.objectives import Objective, get_objective
from pclc.attacks.rules import steepest
from pclc.attacks.types import Model
from pclc.training.adversarial import KL, AdversarialConfig
from pclc.training.robust_losses import kl_rows

# `random_point` draws at steps 0 and 1 of the counter.
_EPS_STEP = 2


def radii(config: AdversarialConfig, seed: int, index: Tensor, epoch: Tensor, dimensions: int) -> float | Tensor:
    """The eps of every example: a number, or a tensor shaped (N, 1, ...) or (1, 1, ...) to be multiplied with images.

    A draw from a range belongs to (seed, index of the example, epoch), so that batches, order and resuming change
    nothing. On a ramp it is multiplied by (epoch + 1) / (ramp_epochs + 1), at most 1.
    """
    eps: float | Tensor
    if isinstance(config.eps, tuple):
        low, high = config.eps
        draws = random.uniform((1,) * (dimensions - 1), seed, index, step=_EPS_STEP, draw=epoch.expand(len(index)))
        eps = low + (high - low) * draws
    else:
        eps = config.eps
    if config.ramp_epochs:
        share = ((epoch + 1) / (config.ramp_epochs + 1)).clamp(max=1)
        eps = eps * share.reshape((1,) * dimensions)
    return eps


def craft(
    model: Model, x: Tensor, y: Tensor, index: Tensor, epoch: Tensor, config: AdversarialConfig, seed: int
) -> Tensor:
    r"""Return the adversarial examples, (N, ...), inside ball and box.

    $$x_{t+1} = \Pi_{\varepsilon}\big(x_t + \alpha\, s(\nabla_x L(x_t, y))\big)$$

    Args:
        model: images to logits, in eval mode and frozen (`pclc.attacks.frozen.frozen`): crafting then leaves BatchNorm
            statistics alone, and asks for no gradient of a weight.
        x: (N, ...) in [0, 1].
        y: (N,) true classes.
        index: (N,) int64, the examples' places in the training set.
        epoch: int64 of one element, a tensor so that a captured step sees it change.
        config: resolved.
        seed: of the random starts and of eps.
    """
    assert config.alpha is not None
    assert config.steps is not None
    assert config.objective is not None
    eps = radii(config, seed, index, epoch, x.dim())
    alpha = eps * (config.alpha / config.largest_eps)
    start = x
    if config.random_start:
        start = random_point(x, eps, config.norm, seed, index, draw=epoch.expand(len(index)))
    objective = _to_clean(model(x).detach()) if config.objective == KL else get_objective(config.objective)
    to_ball = partial(project, eps=eps, norm=config.norm)
    step = make_step(autograd_gradient(model, objective), steepest(alpha, config.norm), to_ball)
    rows = Rows(x, y, index, start, x.new_empty(len(x), 0))
    for t in range(config.steps):
        rows = step(rows, t).rows
    return rows.x_adv.detach()


def _to_clean(clean: Tensor) -> Objective:
    return lambda logits, y: kl_rows(clean, logits)
