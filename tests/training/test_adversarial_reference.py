"""Three steps of every method against a loop in float64, with BatchNorm, momentum and averaged weights."""

import pytest
import torch
from torch import Tensor, nn

import pclc
from pclc.attacks.balls import random_point
from pclc.data import Dataset
from pclc.data.feed import epoch_seed
from pclc.training import ADVERSARIAL_PRESETS, AdversarialConfig, TrainConfig, adversarial_preset

EPS, LR, DECAY, SMOOTHING, EMA, STEPS = 0.1, 0.05, 0.01, 0.1, 0.3, 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Softplus(), nn.Flatten(), nn.Linear(4 * 36, 10))


def log_probabilities(model: nn.Module, x: Tensor) -> Tensor:
    z: Tensor = model(x)
    return z - z.exp().sum(1, keepdim=True).log()


def smoothed_ce(log_f: Tensor, y: Tensor) -> Tensor:
    target = torch.full_like(log_f, SMOOTHING / 10)
    target[torch.arange(len(y)), y] += 1 - SMOOTHING
    return -(target * log_f).sum(1).mean()


def kl(log_f: Tensor, log_g: Tensor) -> Tensor:
    return (log_f.exp() * (log_f - log_g)).sum(1)


def naive_loss(recipe: AdversarialConfig, clean: Tensor, adversarial: Tensor, y: Tensor) -> Tensor:
    """The method's formula as its paper has it, on log-probabilities of clean and adversarial images."""
    rows = torch.arange(len(y))
    f, g = clean.exp(), adversarial.exp()
    false = torch.stack([row[torch.arange(10) != k] for row, k in zip(g, y, strict=True)])
    beta = recipe.beta or 0.0
    if recipe.method == "mix":
        return (smoothed_ce(clean, y) + smoothed_ce(adversarial, y)) / 2
    if recipe.method == "trades":
        return smoothed_ce(clean, y) + beta * kl(clean, adversarial).mean()
    if recipe.method == "mart":
        boosted = smoothed_ce(adversarial, y) - (1 - false.amax(1)).log().mean()
        return boosted + beta * ((1 - f[rows, y]) * kl(clean, adversarial)).mean()
    if recipe.method == "pc":
        assert recipe.margin is not None
        pc = (false + recipe.margin - g[rows, y][:, None]).clamp(min=0).mean(1)
        return smoothed_ce(adversarial, y) + beta * pc.mean()
    return smoothed_ce(adversarial, y)


def naive_craft(model: nn.Module, recipe: AdversarialConfig, x: Tensor, y: Tensor, epoch: int) -> Tensor:
    """Signed steps in eval mode, from the random point of (seed, example, epoch)."""
    assert recipe.steps is not None
    assert recipe.alpha is not None
    model.eval()
    index, draw = torch.arange(len(x)), torch.full((len(x),), epoch)
    start = random_point(x.float(), EPS, "Linf", epoch_seed(7, "crafting"), index, draw=draw)
    x_adv = start.double() if recipe.random_start else x
    clean = log_probabilities(model, x).detach()
    for _ in range(recipe.steps):
        leaf = x_adv.clone().requires_grad_()
        log_f = log_probabilities(model, leaf)
        value = kl(clean, log_f).sum() if recipe.objective == "kl" else -log_f[torch.arange(len(y)), y].sum()
        (gradient,) = torch.autograd.grad(value, leaf)
        x_adv = torch.minimum(torch.maximum(x_adv + recipe.alpha * gradient.sign(), x - EPS), x + EPS).clamp(0, 1)
    return x_adv


def naive_run(recipe: AdversarialConfig, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], list[float]]:
    """The averaged weights and BatchNorm statistics after three steps, and the losses."""
    model = network().double()
    buffers: list[Tensor] = [torch.zeros_like(parameter) for parameter in model.parameters()]
    average = {name: value.clone() for name, value in model.state_dict().items()}
    losses = []
    for epoch in range(STEPS):
        x_adv = naive_craft(model, recipe, x, y, epoch)
        model.train()
        if recipe.clean:
            clean, adversarial = log_probabilities(model, torch.cat([x, x_adv])).chunk(2)
        else:
            clean = adversarial = log_probabilities(model, x_adv)
        loss = naive_loss(recipe, clean, adversarial, y)
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient, buffer in zip(model.parameters(), gradients, buffers, strict=True):
                gradient = gradient + DECAY * parameter
                buffer.mul_(0.9).add_(gradient)
                parameter.sub_(LR * (gradient + 0.9 * buffer))
        keep = min(EMA, (2 + epoch) / (11 + epoch))
        for name, value in model.state_dict().items():
            average[name] = keep * average[name] + (1 - keep) * value if value.is_floating_point() else value.clone()
    return average, losses


RECIPES = {
    **{name: adversarial_preset(name, eps=EPS) for name in ADVERSARIAL_PRESETS if name != "madry-mnist"},
    "mae": adversarial_preset("pc", eps=EPS, margin=1.0),
    "smaller margin": adversarial_preset("pc", eps=EPS, margin=0.2),
}


@pytest.mark.parametrize("name", RECIPES)
def test_three_steps(name: str, digits: Dataset) -> None:
    """Epochs of a single batch, so that the order within it changes nothing but rounding."""
    recipe = RECIPES[name].resolved()
    few = digits.subset(torch.arange(32))
    config = TrainConfig(
        loss="ce", warm_up_epochs=0, epochs=STEPS, batch_size=32, lr=LR, milestones=(), weight_decay=DECAY, seed=7,
        optimizer="sgd", ema=EMA, label_smoothing=SMOOTHING, adversarial=recipe,
    )  # fmt: skip
    result = pclc.train(network(), few, config, execution=pclc.Execution(device="cpu"))
    weights, losses = naive_run(recipe, few.images.double() / 255, few.labels)
    assert [entry["loss"] for entry in result.history] == pytest.approx(losses, rel=1e-3)
    for key, value in result.model.state_dict().items():
        torch.testing.assert_close(value.double(), weights[key].double(), rtol=2e-3, atol=2e-4, msg=key)
