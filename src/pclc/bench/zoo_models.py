"""Small models on digits whose robustness is known to be hollow, or known to be real: what an audit is tested with."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pclc
from pclc.data.dataset import Dataset
from pclc.training.adversarial import Method
from pclc.training.config import LossName

_EPOCHS, _BATCH, _LR = 30, 64, 0.01
_LEVELS = 8  # that pixels are rounded to


class Built(NamedTuple):
    """A model, and what only its maker knows.

    Attributes:
        model: what is audited.
        plain: a differentiable network inside, without the trick; what the reference attacks beside the model.
        certify: (x, y, eps) to (N,) flags, true only where no adversarial example exists; None where nobody can tell.
    """

    model: nn.Module
    plain: nn.Module
    certify: Callable[[Tensor, Tensor, float], Tensor] | None = None


@dataclass(frozen=True)
class Member:
    """One model of the zoo: made to hide something, or made to be honest, and the radius at which it is audited."""

    name: str
    family: str
    honest: bool
    eps: float
    build: Callable[[Dataset], Built]


def zoo(seeds: int = 3) -> tuple[Member, ...]:
    """All members; each family has `seeds` of them at each setting.

    Example:
        >>> members = zoo()
        >>> len(members) >= 60, len({member.name for member in members}) == len(members)
        (True, True)
    """
    members = [member for seed in range(seeds) for member in _members(seed)]
    # Noise at a radius where little is left to claim: a random model needs more examples there than the audit sees.
    hard = [_member(seed, "noisy", False, 0.15, wrapped, wrapper=Noisy) for seed in range(seeds)]
    return *members, *hard


def _member(
    seed: int, family: str, honest: bool, eps: float, build: Callable[..., Built], **settings: object
) -> Member:
    named = (f"{name} {value}" for name, value in settings.items() if name != "wrapper")
    words = [family, *named, f"eps {eps}", f"seed {seed}"]
    return Member(", ".join(words), family, honest, eps, partial(build, seed=seed, **settings))


def _members(seed: int) -> Iterator[Member]:
    make = partial(_member, seed)
    for loss in ("pc-lc", "pc-lc-authors", "gce", "cot"):
        yield make(loss, False, 0.15, _by_loss, loss=loss)
    yield make("label smoothing", False, 0.15, _by_loss, loss="ce", label_smoothing=0.3)
    yield make("logit squeezing", False, 0.15, squeezed)
    yield make("saturated", False, 0.1, scaled, scale=100.0)
    yield make("saturated", False, 0.1, scaled, scale=1e4)
    yield make("saturated, adversarially trained", False, 0.15, scaled_robust, scale=1e4)
    yield make("distilled", False, 0.1, distilled, temperature=50.0)
    yield make("quantised input", False, 0.15, wrapped, wrapper=Quantised)
    yield make("quantised module", False, 0.15, wrapped, wrapper=WithRounding)
    yield make("detached", False, 0.15, wrapped, wrapper=Detached)
    yield make("rounded logits", False, 0.15, wrapped, wrapper=Rounded)
    yield make("purified", False, 0.15, purified, components=20)
    yield make("optimising forward", False, 0.15, wrapped, wrapper=Optimising)
    yield make("noisy", False, 0.1, wrapped, wrapper=Noisy)
    yield make("stochastic", False, 0.15, wrapped, wrapper=Stochastic)
    yield make("k-winners", False, 0.15, winners)
    yield make("cross-entropy", True, 0.05, _by_loss, loss="ce")
    yield make("cross-entropy that falls", True, 0.3, _by_loss, loss="ce")
    yield make("madry", True, 0.1, adversarial, method="madry")
    yield make("madry", True, 0.15, adversarial, method="madry")
    yield make("trades", True, 0.1, adversarial, method="trades")
    yield make("trades", True, 0.15, adversarial, method="trades")
    yield make("interval bounds", True, 0.05, certified, radius=0.05)
    yield make("interval bounds", True, 0.1, certified, radius=0.1)


def fit(
    model: nn.Module, train: Dataset, loss: Callable[[Tensor, Tensor], Tensor], seed: int, epochs: int, lr: float = _LR
) -> nn.Module:
    """Adam on a loss of images and classes; the model comes back in eval mode."""
    x, y = train.images.float() / 255, train.labels
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for start in range(0, len(x), _BATCH):
            rows = order[start : start + _BATCH]
            optimizer.zero_grad()
            loss(x[rows], y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        schedule.step()
    return model.eval()


def _network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return pclc.create_model("lenet8")


def _by_loss(train: Dataset, seed: int, loss: LossName, label_smoothing: float = 0.0) -> Built:
    model = _trained(train, seed, loss, label_smoothing)
    return Built(model, model)


@cache  # half of the zoo is built around the same networks
def _trained(train: Dataset, seed: int, loss: LossName, label_smoothing: float = 0.0) -> nn.Module:
    config = pclc.TrainConfig(loss, _EPOCHS, _EPOCHS, _BATCH, seed=seed, label_smoothing=label_smoothing)
    return pclc.train(_network(seed), train, config, execution=pclc.Execution(device="cpu")).model.eval()


@cache
def adversarial(train: Dataset, seed: int, method: Method) -> Built:
    """Trained on PGD examples at eps 0.15."""
    config = pclc.TrainConfig(
        loss="ce",
        warm_up_epochs=0,
        epochs=_EPOCHS,
        batch_size=_BATCH,
        lr=0.005,
        seed=seed,
        adversarial=pclc.AdversarialConfig(method, eps=0.15, validate_every=1000),
    )
    model = pclc.train(_network(seed), train, config, execution=pclc.Execution(device="cpu")).model.eval()
    return Built(model, model)


def squeezed(train: Dataset, seed: int) -> Built:
    """Cross-entropy and a penalty on the squares of the logits (Kannan et al., 2018)."""
    model = _network(seed)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        logits = model(x)
        penalty: Tensor = 0.05 * logits.square().sum(1).mean()
        return F.cross_entropy(logits, y) + penalty

    fit(model, train, loss, seed, 2 * _EPOCHS)
    return Built(model, model)


def distilled(train: Dataset, seed: int, temperature: float) -> Built:
    """Teacher and student at a high temperature, used at 1 (Papernot et al., 2016): the softmax is saturated."""
    teacher, student = _network(seed), _network(seed + 1000)
    fit(teacher, train, lambda x, y: F.cross_entropy(teacher(x) / temperature, y), seed, _EPOCHS)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            soft = (teacher(x) / temperature).softmax(1)
        return F.cross_entropy(student(x) / temperature, soft)

    fit(student, train, loss, seed, _EPOCHS)
    return Built(student, student)


class Around(nn.Module):
    """A network with something around it."""

    def __init__(self, plain: nn.Module) -> None:
        super().__init__()
        self.plain = plain


class Scaled(Around):
    """The logits of a network times a number."""

    def __init__(self, plain: nn.Module, scale: float) -> None:
        super().__init__(plain)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.scale * self.plain(x)  # type: ignore[no-any-return]


def scaled(train: Dataset, seed: int, scale: float) -> Built:
    """Cross-entropy with logits so large that the softmax is saturated in float32."""
    plain = _by_loss(train, seed, "ce").model
    return Built(Scaled(plain, scale).eval(), plain)


def scaled_robust(train: Dataset, seed: int, scale: float) -> Built:
    """The same with an adversarially trained network: robust, and its claim wrong all the same."""
    plain = adversarial(train, seed=seed, method="madry").model  # named as the zoo does, or the cache misses it
    return Built(Scaled(plain, scale).eval(), plain)


class Quantised(Around):
    """Pixels rounded to a few levels, in the model's own code."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.plain((x * _LEVELS).round() / _LEVELS)  # type: ignore[no-any-return]


class Round(nn.Module):
    """Rounding to a few levels, as a module."""

    def forward(self, x: Tensor) -> Tensor:
        """The nearest level."""
        return (x * _LEVELS).round() / _LEVELS


class WithRounding(nn.Sequential):
    """A module that rounds, before the network."""

    def __init__(self, plain: nn.Module) -> None:
        super().__init__(Round(), plain)


class Detached(Around):
    """A network cut off from its input, as code does that passes through numpy."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.plain(x.detach())  # type: ignore[no-any-return]


class Rounded(Around):
    """Logits as whole numbers, as a service gives scores."""

    def forward(self, x: Tensor) -> Tensor:
        """Rounded logits."""
        return self.plain(x).round()  # type: ignore[no-any-return]


class Purified(Around):
    """An encoder and a decoder before the network, run without gradients."""

    def __init__(self, plain: nn.Module, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__(plain)
        self.purify = nn.Sequential(nn.Flatten(), encoder, decoder, nn.Unflatten(1, (1, 8, 8)))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of what comes back."""
        with torch.no_grad():
            clean = self.purify(x)
        return self.plain(clean)  # type: ignore[no-any-return]


def purified(train: Dataset, seed: int, components: int) -> Built:
    """Cross-entropy behind the first principal components of the training images."""
    images = train.images.float().flatten(1) / 255
    mean = images.mean(0)
    rows = torch.linalg.svd(images - mean, full_matrices=False).Vh[:components]
    encoder, decoder = nn.Linear(64, components), nn.Linear(components, 64)
    encoder.weight.data, encoder.bias.data = rows, -rows @ mean
    decoder.weight.data, decoder.bias.data = rows.T.contiguous(), mean
    model = Purified(_by_loss(train, seed, "ce").model, encoder, decoder).eval()
    return Built(model, nn.Sequential(model.purify, model.plain))


class Optimising(Around):
    """Three steps towards what the network already thinks, then the answer: a defence at test time."""

    def __init__(self, plain: nn.Module, step: float = 0.01) -> None:
        super().__init__(plain)
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        z = x.detach()
        with torch.enable_grad():
            for _ in range(3):
                z = z.requires_grad_()
                loss = self.plain(z).logsumexp(1).sum()
                z = (z + self.step * torch.autograd.grad(loss, z)[0].sign()).clamp(0, 1).detach()
        return self.plain(z)  # type: ignore[no-any-return]


class Noisy(Around):
    """Normal noise on every image, also at test time."""

    def __init__(self, plain: nn.Module, sigma: float = 0.15) -> None:
        super().__init__(plain)
        self.sigma = sigma

    def forward(self, x: Tensor) -> Tensor:
        """Logits of one draw."""
        return self.plain(x + self.sigma * torch.randn_like(x))  # type: ignore[no-any-return]


class Stochastic(Around):
    """A fifth of the pixels dropped at random, and logits that saturate the softmax."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits of one draw."""
        kept = torch.rand_like(x) >= 0.2
        return 100.0 * self.plain(x * kept)  # type: ignore[no-any-return]


def wrapped(train: Dataset, seed: int, wrapper: type[nn.Module]) -> Built:
    """Cross-entropy behind one of the above."""
    plain = _by_loss(train, seed, "ce").model
    return Built(wrapper(plain).eval(), plain)


class Winners(nn.Module):
    """Keeps the largest tenth of its inputs (k-winners-take-all, Xiao et al., 2020)."""

    def forward(self, x: Tensor) -> Tensor:
        """x, or 0 where it is not among the winners."""
        flat = x.flatten(1)
        least = flat.topk(max(1, round(0.1 * flat.shape[1])), dim=1).values[:, -1:]
        return (flat * (flat >= least)).reshape(x.shape)


def winners(train: Dataset, seed: int) -> Built:
    """A network with k-winners for its rectifiers."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), Winners(), nn.Conv2d(32, 32, 3, padding=1, stride=2), Winners(),
        nn.Flatten(), nn.Linear(512, 64), Winners(), nn.Linear(64, 10),
    )  # fmt: skip
    fit(model, train, lambda x, y: F.cross_entropy(model(x), y), seed, _EPOCHS, lr=0.003)
    return Built(model, model)


def interval(layers: nn.Sequential, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Bounds of the outputs over the Linf ball, of linear layers and rectifiers (Gowal et al., 2018).

    Example:
        >>> layers = nn.Sequential(nn.Linear(1, 1))
        >>> layers[0].weight.data, layers[0].bias.data = torch.tensor([[-2.0]]), torch.tensor([1.0])
        >>> [bound.item() for bound in interval(layers, torch.tensor([[0.5]]), 0.25)]
        [-0.5, 0.5]
    """
    low, high = (x - eps).clamp(0, 1), (x + eps).clamp(0, 1)
    for layer in layers:
        if isinstance(layer, nn.Linear):
            middle, reach = layer((low + high) / 2), (high - low) / 2 @ layer.weight.abs().T
            low, high = middle - reach, middle + reach
        else:
            low, high = layer(low), layer(high)
    return low, high


def _worst_logits(layers: nn.Sequential, x: Tensor, y: Tensor, eps: float) -> Tensor:
    low, high = interval(layers, x, eps)
    return high.scatter(1, y[:, None], low.gather(1, y[:, None]))


def certified(train: Dataset, seed: int, radius: float) -> Built:
    """Trained on interval bounds, so that a lower bound of its robust accuracy can be computed."""
    torch.manual_seed(seed)
    layers = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    done, ramp = 0, _EPOCHS * -(-len(train) // _BATCH)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        nonlocal done
        done += 1
        grown = radius * min(1.0, done / ramp)
        worst = _worst_logits(layers, x, y, grown)
        return (F.cross_entropy(layers(x), y) + F.cross_entropy(worst, y)) / 2

    fit(layers, train, loss, seed, 2 * _EPOCHS, lr=0.002)

    def certify(x: Tensor, y: Tensor, eps: float) -> Tensor:
        with torch.no_grad():
            return _worst_logits(copy.deepcopy(layers).double(), x.double(), y, eps).argmax(1) == y

    return Built(layers, layers, certify)
