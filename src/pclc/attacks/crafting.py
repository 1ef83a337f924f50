"""The model as attacks pass through it while they craft: in faster kernels, and in fp16 where that is enough."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Literal

import torch
from torch import Tensor, nn

from pclc.attacks.gradients import fp16_gradient, input_gradient, is_zero
from pclc.attacks.types import Model
from pclc.execution import Execution, ieee_fp32, made_ready
from pclc.execution.layers import ConvReLU

# Rows on which a model that was made ready is compared with itself, and how far logits may be off, as a share of the
# row's largest distance from its mean: in float32, and with the ten bits of TF32 and fp16.
_COMPARED_ROWS, _SAME, _NEARLY_SAME = 16, 1e-3, 1e-2

# How many times as far off as in TF32 gradients in fp16 may be: layers that are not fused round twice or three times.
_TIMES_TF32, _ROUNDING = 4, 2**-11

# The largest number inside a model that leaves fp16 enough room, 65,504 being its largest: what other images may have.
_LARGEST_INSIDE = 65_504 / 64

# The device is asked so often, in passes, whether fp16 was too small for one: each time it has to be waited for.
_LOOK_EVERY = 8

What = Literal["logits", "gradients"]


class Crafting:
    """Logits and gradients in the precision of `execution`, of the model made ready where it gives the same.

    Where that is TF32, fp16 has as many digits and half the bytes, but a small range. It is used where a comparison at
    the first images finds it enough, and left when it turns out to be too small. Logits are in it without gradients
    only while none are asked for: FAB steps to the boundary that gradients see, where logits that are rounded otherwise
    may never see a point that fools.

    Args:
        model: images (N, ...) to logits (N, K), in eval mode.
        execution: precision and compilation.
    """

    def __init__(self, model: Model, execution: Execution) -> None:
        self.model, self.execution = model, execution
        # Where crafting is exact its logits decide, and they are to be those of the model itself.
        self.fast = self.ready = model
        if isinstance(model, nn.Module) and execution.resolved_precision != "fp32":
            self.ready = made_ready(model, execution)
        self.in_fp16: set[What] = set()
        self._has_chosen = False
        self._too_small: Tensor  # a flag on the device, into which graphs write
        self._passes: Counter[What] = Counter()

    def choose(self, x: Tensor) -> None:
        """Decide, at the first images, on which model to craft and in what."""
        if self._has_chosen:
            return
        self._has_chosen = True
        if self.ready is not self.model and is_same(self.model, self.ready, x[:_COMPARED_ROWS], self.execution):
            self.fast = self.ready
            if x.is_cuda and self.execution.resolved_precision == "tf32":
                self.in_fp16 = self.what_fp16_is_enough_for(x)
        self._too_small = torch.zeros((), dtype=torch.bool, device=x.device)
        if self.execution.compile:
            self.fast = torch.compile(self.fast)

    def leave_fp16(self) -> bool:
        """Leave it where it was too small, and tell whether it was: graphs with fp16 in them are to be forgotten."""
        leave = bool(self.in_fp16) and bool(self._too_small)
        if leave:
            self.in_fp16.clear()
        return leave

    def leave_fp16_for_gradients(self) -> bool:
        """The same where it is not enough for gradients, which are asked for now."""
        leave = self.in_fp16 == {"logits"}
        if leave:
            self.in_fp16.clear()
        return leave

    def leave_fp16_now_and_then(self, what: What) -> bool:
        """The same after a pass: not every attack comes to decide an outcome before it ends."""
        self._passes[what] += 1
        return self._passes[what] % _LOOK_EVERY == 1 and self.leave_fp16()

    # Images and logits are copied: a model may write into its input, and may use its output's memory again.

    @torch.no_grad()
    def logits(self, x: Tensor) -> tuple[Tensor]:
        """Of each row."""
        half = "logits" in self.in_fp16
        with self.execution.arithmetic(half):
            logits = copied(self.fast(self.execution.lay_out(x).clone()))
        return (self._noted(logits) if half else logits,)

    def slope(self, objective: Callable[..., Tensor], x: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        """Logits, value and gradient of `objective(logits, *rows)`, and whether the gradient is exactly zero."""
        x = self.execution.lay_out(x)
        if "gradients" in self.in_fp16:
            with self.execution.arithmetic(half=True):
                logits, value, grad, lost = fp16_gradient(self.fast, objective, x, *rows)
            self._too_small.logical_or_(lost.any())
            logits = self._noted(logits)
            zero = is_zero(grad) & ~lost  # of which the model may well have one
        else:
            with self.execution.arithmetic():
                logits, value, grad = input_gradient(self.fast, objective, x, *rows)
            zero = is_zero(grad)
        return logits, value, grad.contiguous(), zero

    def _noted(self, logits: Tensor) -> Tensor:
        finite = logits.isfinite()
        self._too_small.logical_or_(~finite.all())
        # NaN is looked at; an infinite logit of the true class would not be.
        return torch.where(finite, logits, torch.nan)

    def what_fp16_is_enough_for(self, x: Tensor) -> set[What]:
        """Of the first images and their negatives, which are as different as can be."""
        x = torch.cat([x[:_COMPARED_ROWS], 1 - x[:_COMPARED_ROWS]])
        try:
            if not self._logits_survive(x):
                return set()
            return {"logits", "gradients"} if self._gradients_survive(x) else {"logits"}
        except Exception:  # code that cannot cope with fp16
            return set()

    @torch.no_grad()
    def _logits_survive(self, x: Tensor) -> bool:
        """Whether fp16 is enough for the model's numbers, and its logits keep more digits than fp16 has.

        cuDNN's ReLU makes zero of NaN, so that of an overflow inside the logits need not tell, and there must be room.
        """
        with ieee_fp32():
            own = self.model(x.clone())
        largest: list[Tensor] = []
        with self.execution.arithmetic(half=True), ExitStack() as hooks:
            for layer in self.ready.modules() if isinstance(self.ready, nn.Module) else ():
                if isinstance(layer, ConvReLU):
                    hooks.callback(layer.register_forward_hook(lambda _, __, y: largest.append(y.amax())).remove)
            half = self.ready(x.clone())
        room = all(number <= _LARGEST_INSIDE for number in largest)
        finer = (half != half.half().to(half.dtype)).any(0)  # of each class: they may come from several layers
        return room and _agree(half, own, _NEARLY_SAME) and bool(finer.all())

    def _gradients_survive(self, x: Tensor) -> bool:
        """Whether those of one logit against the others are about as near to float32's as TF32's are."""
        with ieee_fp32():
            own = input_gradient(self.model, _first_against_others, x)[2]
        with self.execution.arithmetic():
            tf32 = input_gradient(self.ready, _first_against_others, x)[2]
        with self.execution.arithmetic(half=True):
            *_, half, lost = fp16_gradient(self.ready, _first_against_others, x)
        return not lost.any() and _mean_error(half, own) <= _TIMES_TF32 * max(_mean_error(tf32, own), _ROUNDING)


@torch.no_grad()
def is_same(model: Model, ready: Model, x: Tensor, execution: Execution) -> bool:
    """Whether a model that was made ready gives the model's logits, and copes with the precision of `execution`."""
    try:
        with ieee_fp32():
            own, others = model(x.clone()), ready(x.clone())
        with execution.arithmetic():
            ready(x.clone())  # code may not cope with a last layer in float32
        return _agree(others, own, _SAME)
    except Exception:  # whatever a stranger's module raises; the model itself will say it better
        return False


def _agree(logits: Tensor, own: Tensor, share: float) -> bool:
    """Row by row, since dark and bright images may differ by orders of magnitude; what all logits share is nothing."""
    apart = own - own.mean(1, keepdim=True)
    return bool(((logits - own).abs() <= share * apart.abs().amax(1, keepdim=True)).all())


def _first_against_others(logits: Tensor) -> Tensor:
    return logits[:, 0] - logits[:, 1:].mean(1)


def _mean_error(grad: Tensor, own: Tensor) -> float:
    """The mean over rows of the error as a share of the gradient."""
    tiny = torch.finfo(own.dtype).tiny
    off, size = ((rows.flatten(1).double().norm(dim=1)) for rows in (grad - own, own))
    return float((off / size.clamp_min(tiny)).mean())


def copied(logits: Tensor) -> Tensor:
    """Logits in memory of their own."""
    return logits.clone() if isinstance(logits, Tensor) else logits  # what else it may be is told by its checks
