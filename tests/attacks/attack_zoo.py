"""The attacks and the small models that the tests of this folder share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pclc
from pclc.attacks import (
    APGD,
    BIM,
    DDN,
    FAB,
    FGSM,
    MD,
    MIM,
    PGD,
    SPSA,
    APGDTargeted,
    Attack,
    AutoAttack,
    CarliniWagner,
    HardLabel,
    Noise,
    ProbabilityMargin,
    Square,
    Transfer,
)

SHAPE = (1, 6, 6)
CLASSES = 4


class SmallNet(nn.Module):
    """Everything that an attack could disturb: convolution, BatchNorm, Dropout, a frozen parameter."""

    def __init__(self, seed: int = 0, gain: float = 4.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(6 * 36, CLASSES)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / max(parameter[0].numel(), 1) ** 0.5)
            self.norm.running_mean.copy_(torch.randn(6, generator=generator) * 0.1)
            self.head.weight.mul_(gain)
            # Every class is predicted for some image, and no image is far from a boundary.
            self.head.bias.sub_(self.eval()(torch.rand(200, *SHAPE, generator=generator)).mean(0))
        self.train()
        self.conv.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(F.relu(self.norm(self.conv(x)))).flatten(1))


@dataclass(frozen=True)
class Entry:
    """An attack as a function of eps and further settings, and what is to be expected of it."""

    make: Callable[..., Attack]
    norm: str = "Linf"
    eps: float | None = 0.1
    random: bool = False
    untargeted: bool = False  # takes no class to reach

    def __call__(self, **settings: object) -> Attack:
        return self.make(**({} if self.eps is None else {"eps": self.eps}) | settings)


def _ball(kind: type[Attack], **fixed: object) -> Callable[..., Attack]:
    """An attack whose step follows eps, so that eps may be varied alone."""

    def make(eps: float, **settings: object) -> Attack:
        return kind(eps=eps, **({"alpha": max(eps, 0.01) / 4, "steps": 6} | fixed | settings))

    return make


def _transfer(eps: float, targeted: bool = False, **settings: object) -> Attack:
    return Transfer(FGSM(eps=eps, targeted=targeted), SmallNet(seed=1).double(), **settings)


def _spsa(eps: float, norm: str = "Linf", **settings: object) -> Attack:
    return SPSA(eps=eps, **({"lr": max(eps, 0.01) / 3, "steps": 5, "samples": 12, "norm": norm} | settings))


def _autoattack(eps: float, norm: str = "Linf", **settings: object) -> Attack:
    attacks = APGD(eps, steps=3, norm=norm), APGDTargeted(eps, steps=3, norm=norm), Noise(eps, draws=2, norm=norm)
    return AutoAttack(eps, norm, "custom", attacks, **settings)


L2_EPS = 0.5
ZOO = {
    "fgsm": Entry(lambda **settings: FGSM(**settings)),
    "fgsm-l2": Entry(lambda **settings: FGSM(norm="L2", **settings), "L2", L2_EPS),
    "bim": Entry(_ball(BIM)),
    "bim-dlr": Entry(_ball(BIM, objective="dlr")),
    "bim-l2": Entry(_ball(BIM, norm="L2"), "L2", L2_EPS),
    "pgd": Entry(_ball(PGD), random=True),
    "pgd-margin-restarts": Entry(_ball(PGD, objective="margin", restarts=3), random=True),
    "pgd-l2": Entry(_ball(PGD, norm="L2"), "L2", L2_EPS, random=True),
    "mim": Entry(_ball(MIM, decay=0.9)),
    "mim-l2": Entry(_ball(MIM, norm="L2"), "L2", L2_EPS),
    "cw": Entry(
        lambda **settings: CarliniWagner(**({"steps": 25, "search_steps": 4, "initial_const": 1.0} | settings)),
        "L2",
        None,
    ),
    "cw-pixel-first": Entry(
        lambda **settings: CarliniWagner(
            **({"steps": 25, "search_steps": 4, "initial_const": 1.0, "space": "pixel", "nearest": False} | settings)
        ),
        "L2",
        None,
    ),
    "cw-abort-early": Entry(
        lambda **settings: CarliniWagner(
            **({"steps": 25, "search_steps": 4, "initial_const": 1.0, "abort_early": True} | settings)
        ),
        "L2",
        None,
    ),
    "spsa": Entry(_spsa, random=True),
    "spsa-l2": Entry(lambda **settings: _spsa(norm="L2", **settings), "L2", L2_EPS, random=True),
    "noise": Entry(lambda **settings: Noise(**({"draws": 4} | settings)), random=True),
    "noise-l2": Entry(lambda **settings: Noise(**({"draws": 4, "norm": "L2"} | settings)), "L2", L2_EPS, random=True),
    # A step of 2 eps forgets the random point in Linf, unless the gradient's signs differ there.
    "md": Entry(lambda **settings: MD(**({"steps": 8} | settings))),
    "md-l2": Entry(lambda **settings: MD(**({"steps": 8, "norm": "L2"} | settings)), "L2", L2_EPS, random=True),
    "probability-margin": Entry(lambda **settings: ProbabilityMargin(**({"steps": 8} | settings))),
    "probability-margin-l2": Entry(
        lambda **settings: ProbabilityMargin(**({"steps": 8, "norm": "L2"} | settings)), "L2", L2_EPS, random=True
    ),
    "ddn": Entry(lambda **settings: DDN(**({"steps": 12} | settings)), "L2", None),
    "hard-label": Entry(lambda **settings: HardLabel(**({"queries": 40} | settings))),
    "apgd": Entry(lambda **settings: APGD(**({"steps": 8} | settings)), random=True),
    "apgd-dlr-restarts": Entry(
        lambda **settings: APGD(**({"steps": 5, "objective": "dlr", "restarts": 2} | settings)), random=True
    ),
    "apgd-l2": Entry(lambda **settings: APGD(**({"steps": 8, "norm": "L2"} | settings)), "L2", L2_EPS, random=True),
    "apgd-t": Entry(lambda **settings: APGDTargeted(**({"steps": 6} | settings)), random=True, untargeted=True),
    "apgd-t-l2": Entry(
        lambda **settings: APGDTargeted(**({"steps": 6, "norm": "L2"} | settings)),
        "L2",
        L2_EPS,
        random=True,
        untargeted=True,
    ),
    "autoattack": Entry(_autoattack, random=True, untargeted=True),
    "autoattack-l2": Entry(
        lambda **settings: _autoattack(norm="L2", **settings), "L2", L2_EPS, random=True, untargeted=True
    ),
    "fab": Entry(lambda **settings: FAB(**({"steps": 8} | settings))),
    "fab-l2": Entry(lambda **settings: FAB(**({"steps": 6, "norm": "L2"} | settings)), "L2", L2_EPS),
    "square": Entry(lambda **settings: Square(**({"queries": 70} | settings)), random=True),
    "square-l2": Entry(
        lambda **settings: Square(**({"queries": 30, "norm": "L2"} | settings)), "L2", L2_EPS, random=True
    ),
    "transfer": Entry(_transfer),
}


def examples(model: nn.Module, count: int = 12, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Random images, pixels at 0 and 1 among them, with the model's own predictions as labels, two of them wrong."""
    generator = torch.Generator().manual_seed(3)
    x = (torch.rand(count, *SHAPE, generator=generator, dtype=torch.float64) * 1.4 - 0.2).clamp(0, 1).to(dtype)
    with torch.no_grad():
        y = model.eval()(x).argmax(1)
    y[:2] = (y[:2] - 1) % CLASSES
    return x, y


def linear(weight: Tensor, bias: Tensor) -> nn.Module:
    """Logits W x + b of flattened images."""
    head = nn.Linear(weight.shape[1], weight.shape[0]).to(weight.dtype)
    head.weight.data, head.bias.data = weight.clone(), bias.clone()
    return nn.Sequential(nn.Flatten(), head)


def problem(
    shape: tuple[int, ...], classes: int, count: int, shift: float = 0.0
) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """A linear model and images so far inside the box that it does not bind; labels are the predictions.

    The weights of the classes are orthonormal, so that the class of the next largest logit is the nearest one.
    """
    generator = torch.Generator().manual_seed(count)
    size = torch.Size(shape).numel()
    weight = torch.linalg.qr(torch.randn(size, classes, generator=generator, dtype=torch.float64)).Q.T
    x = 0.5 + 0.4 * (torch.rand(count, *shape, generator=generator, dtype=torch.float64) - 0.5)
    model = linear(weight, shift - weight.sum(1) / 2)
    return model, x, model(x).argmax(1), weight


def distances(model: nn.Module, x: Tensor, y: Tensor, weight: Tensor, norm: str) -> Tensor:
    """min over k of (z_y - z_k) / |w_y - w_k| in the dual norm."""
    logits = model(x).detach()
    gap = logits.gather(1, y[:, None]) - logits
    size = (weight[y][:, None] - weight[None]).norm(p={"Linf": 1, "L2": 2}[norm], dim=2)
    return torch.where(size > 0, gap / size, torch.inf).amin(1)


class Scaled(nn.Module):
    """scale * model(x) + shift."""

    def __init__(self, model: nn.Module, scale: float = 1.0, shift: float = 0.0) -> None:
        super().__init__()
        self.model, self.scale, self.shift = model, scale, shift

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.model(x) + self.shift


@cache
def digits() -> tuple[nn.Module, Tensor, Tensor]:
    """A LeNet trained for some seconds on scikit-learn's digits, and the 360 test images."""
    train, test = (pclc.load_dataset("digits", split=split) for split in ("train", "test"))
    x, y = torch.as_tensor(train.images).float() / 255, torch.as_tensor(train.labels)
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = pclc.create_model("lenet8")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(8):
        for batch in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model.eval(), torch.as_tensor(test.images).float() / 255, torch.as_tensor(test.labels)
