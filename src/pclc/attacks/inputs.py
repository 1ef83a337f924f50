"""Checks of what an attack is given: images, labels, places in the data set, a model of the right width."""

import dis
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FunctionType

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from pclc.attacks.notices import ProbabilityWarning, TrainModeWarning
from pclc.attacks.types import Model

_ABOUT_SHAPES = re.compile(r"channels|shapes? |size of tensor|dimension|size mismatch")


def check_examples(x: Tensor, y: Tensor) -> None:
    """Refuse images that are not float in [0, 1] and labels that are not one class index for each."""
    for name, value in (("x", x), ("y", y)):
        if not isinstance(value, Tensor):
            raise TypeError(f"Expected `{name}` to be a tensor, but got a {type(value).__name__}.")
    if x.dtype not in (torch.float32, torch.float64):
        advice = ": use x.float() / 255" if x.dtype == torch.uint8 else ""
        raise TypeError(f"Expected `x` to be float32 or float64 with values in [0, 1], but got {x.dtype}{advice}.")
    if x.dim() < 2:
        raise ValueError(f"Expected `x` to be of shape (N, C, H, W) or (N, ...), but got {tuple(x.shape)}.")
    if y.dtype != torch.int64:
        raise TypeError(f"Expected `y` to hold class indices (int64), but got {y.dtype}.")
    if y.shape != x.shape[:1]:
        raise ValueError(
            f"Expected `y` to be of shape ({len(x)},), one label for each image, but got {tuple(y.shape)}."
        )
    if x.device != y.device:
        raise ValueError(f"Expected `x` and `y` on one device, but got {x.device} and {y.device}.")
    if x.numel() == 0:
        return
    if x.isnan().any():
        raise ValueError("Expected `x` to have values in [0, 1], but got NaN.")
    low, high = x.min().item(), x.max().item()
    if low < 0 or high > 1:
        raise ValueError(
            f"Expected `x` to have values in [0, 1], but got values in [{low:.4g}, {high:.4g}]: "
            f"{pixel_advice(low, high)}."
        )
    if y.min() < 0:
        raise ValueError(f"Expected every label in `y` to be at least 0, but got {y.min().item()}.")


def pixel_advice(low: float, high: float) -> str:
    """What to do about pixels that are not in [0, 1].

    Example:
        >>> pixel_advice(-0.4, 2.8)
        'leave them as they were before normalisation, which belongs in the model (pclc.models.Normalize)'
    """
    if low < 0:
        return "leave them as they were before normalisation, which belongs in the model (pclc.models.Normalize)"
    return "use x.float() / 255" if high > 2 else "clamp them, or scale them"


def check_randomness(seed: int, index: Tensor | None, x: Tensor) -> Tensor:
    """Refuse seeds and indices that are out of range; return the index, 0 ... N - 1 where none is given."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise ValueError(f"Expected `seed` to be a whole number in [0, 2^64), but got {seed!r}.")
    if index is None:
        return torch.arange(len(x), device=x.device)
    if not isinstance(index, Tensor):
        raise TypeError(f"Expected `index` to be a tensor, but got a {type(index).__name__}.")
    if index.dtype != torch.int64 or index.shape != x.shape[:1]:
        raise ValueError(
            f"Expected `index` to be int64 of shape ({len(x)},), the images' places in their data set, "
            f"but got {index.dtype} of shape {tuple(index.shape)}."
        )
    if len(index) and (index.min() < 0 or index.max() >= 2**32):
        raise ValueError(
            f"Expected every number in `index` to lie in [0, 2^32), "
            f"but got values in [{index.min().item()}, {index.max().item()}]."
        )
    return index.to(x.device)


@contextmanager
def explain_types(model: Model, x: Tensor) -> Iterator[None]:
    """Where the first pass, in the block, fails because the model takes images of another type or shape, say so."""
    if not callable(model):
        raise TypeError(f"Expected `model` to be a module or a function, but got a {type(model).__name__}.")
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        types = {str(p.dtype) for p in model.parameters()} if isinstance(model, nn.Module) else set()
        asserted = isinstance(error, AssertionError)  # timm asserts the size of images, others assert anything
        if asserted or not types or str(x.dtype) in types:
            if not (asserted or _ABOUT_SHAPES.search(str(error))):
                raise
            what = "an assertion in its first pass failed" if asserted else "its first pass failed"
            raise ValueError(
                f"Expected `model` to take images of shape {tuple(x.shape[1:])}, as `x` has them, but {what}: {error}"
            ) from error
        use = "model.float()" if x.dtype == torch.float32 else "x.float()"
        raise ValueError(
            f"Expected the parameters of `model` to be {x.dtype}, as `x` is, but got {', '.join(sorted(types))}: use "
            f"{use}. `Execution(precision=...)` chooses the precision of attacks."
        ) from error


@contextmanager
def explain_inference() -> Iterator[None]:
    """Where a pass for a gradient, in the block, fails because the model was made in inference mode, say so."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("Inference tensors"):
            raise
        raise ValueError(
            "Expected `model` to be made outside of torch.inference_mode(), but got one made inside it, which gives no "
            "gradients: use copy.deepcopy(model)."
        ) from error


def check_logits(logits: Tensor, count: int, y: Tensor) -> None:
    """Refuse a model that does not give one row of logits, wide enough for the labels, to each of `count` images."""
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"Expected `model` to return a tensor of logits, but got a {type(logits).__name__}: wrap it in a module "
            "that returns only the logits."
        )
    if logits.dim() != 2 or len(logits) != count:
        raise ValueError(
            f"Expected `model` to return logits of shape ({count}, K), one row for each image, "
            f"but got {tuple(logits.shape)}."
        )
    if not logits.is_floating_point():
        raise ValueError(f"Expected `model` to return floating-point logits, but got {logits.dtype}.")
    K = logits.shape[1]
    if K < 2:
        raise ValueError(
            f"Expected `model` to return at least 2 logits for each image, but got {K}. If that is the one logit z "
            "of a model of two classes, return torch.cat([torch.zeros_like(z), z], 1)."
        )
    if y.max() >= K:
        raise ValueError(
            f"Expected every label in `y` to lie in [0, {K - 1}], because the model has {K} classes, "
            f"but got {y.max().item()}."
        )
    if logits.isnan().any():
        raise ValueError("Expected `model` to return logits, but got NaN on the clean images.")


def warn_of_train_mode(model: Model) -> None:
    """Say so where a function calls a module in which dropout or BatchNorm act as in training: its mode stays."""
    function = getattr(model, "__func__", model)
    if isinstance(model, nn.Module) or not isinstance(function, FunctionType):
        return
    names = [code.argval for code in dis.get_instructions(function) if code.opname == "LOAD_GLOBAL"]
    used = [getattr(model, "__self__", None), *map(function.__globals__.get, names)]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it may be empty
            used.append(cell.cell_contents)
    layers = (layer for module in used if isinstance(module, nn.Module) for layer in module.modules())
    if any(layer.training for layer in layers if isinstance(layer, _BatchNorm | _DropoutNd)):
        warnings.warn(
            "`model` is a function that calls a module in training mode, which an attack cannot change: dropout and "
            "BatchNorm act as in training, and the attack is weaker than it seems. Call eval() on the module first.",
            TrainModeWarning,
            stacklevel=4,
        )


def are_probabilities(logits: Tensor) -> bool:
    """Whether every row is non-negative and sums to one."""
    return bool((logits >= 0).all() and ((logits.double().sum(1) - 1).abs() < 1e-3).all())


def warn_of_probabilities(logits: Tensor) -> None:
    """Say so where a model gives them in place of logits."""
    if are_probabilities(logits):
        warnings.warn(
            "`model` seems to return probabilities: every row is non-negative and sums to 1. Attacks need logits: the "
            "gradients of probabilities vanish where the softmax is saturated.",
            ProbabilityWarning,
            stacklevel=4,
        )
