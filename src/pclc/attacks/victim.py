"""The model under attack, as attacks use it: logits and gradients for any number of rows, fast, every pass counted."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn

from pclc.attacks.cost import Cost
from pclc.attacks.crafting import Crafting, copied
from pclc.attacks.types import Model
from pclc.execution import Batched, Execution, ieee_fp32, in_batches, is_of_layout, laid_out

# Logits that differ by less than this share of the largest may swap places in float32.
_NEAR_TIE = 1e-5
_EXACT_ROWS = 500

_Given = TypeVar("_Given")


class Slope(NamedTuple):
    """What one forward and backward pass gives for each row."""

    logits: Tensor  # (N, K)
    value: Tensor  # (N,) of the objective
    grad: Tensor  # of the shape of x


class Victim:
    """A model in eval mode that asks for no gradients of its parameters (`frozen`), and how it runs.

    Crafting uses `logits` and `gradient`, in the precision of `execution`; outcomes are decided by `is_fooled` and
    `confirm`, in IEEE float32 and, where two logits are nearly equal, again in float64. Rows are batched here, so
    attacks pass all they have.

    Args:
        model: images (N, ...) to logits (N, K).
        execution: precision, batch size, compilation and graphs; `Execution.for_attacks` made it.
    """

    def __init__(self, model: Model, execution: Execution) -> None:
        self.model = model
        self.cost = Cost()
        self._twin: nn.Module | None = None
        self._lent: list[tuple[nn.Parameter, Tensor]] = []
        self._begin(execution)

    def _begin(self, execution: Execution) -> None:
        self.execution = execution
        self.crafting = Crafting(self.model, execution)
        self._pool = torch.cuda.graph_pool_handle() if execution.captures else None
        self._logits = self._batched(self.crafting.logits)
        # Eager: few rows pass here, each once. On an H200 float32 convolutions are slower in larger batches.
        rows = min(_EXACT_ROWS, execution.resolved_batch_size)
        self._exact = Batched(partial(_exact_forward, self.model, execution), rows, few_sizes=self._few_sizes)
        self._gradients: dict[Callable[..., Tensor], Batched] = {}

    def __enter__(self) -> Self:
        """Lend the model its weights in the layout that is fast on the CPU; on CUDA the images' layout decides."""
        if self.execution.torch_device.type == "cpu":
            self._lend()
        return self

    def _lend(self) -> None:
        for parameter in self.model.parameters() if isinstance(self.model, nn.Module) else ():
            if parameter.dim() == 4:
                self._lent.append((parameter, parameter.data))
                parameter.data = laid_out(parameter.data, self.execution.memory_format)

    def _take_back(self) -> None:
        for parameter, data in self._lent:
            parameter.data = data
        self._lent.clear()

    def __exit__(self, *error: object) -> None:
        """Take them back, and let go of the graphs, which hold gigabytes."""
        self._take_back()
        self._exact.release()
        self._forget_crafting()

    def logits(self, x: Tensor) -> Tensor:
        """The logits (N, K) in the precision of crafting."""
        self.cost.forwards += len(x)
        return self._in_a_layout(self._fast_logits, x)

    def gradient(self, objective: Callable[..., Tensor], x: Tensor, *rows: Tensor) -> Slope:
        """Logits, value and gradient of `objective(logits, *rows)` at x; `rows` have one row per example, as y has."""
        logits, value, grad, zero = self._in_a_layout(self._fast_slope, objective, x, *rows)
        self.cost.add_gradients(zero)
        return Slope(logits, value, grad)

    def exact_logits(self, x: Tensor) -> Tensor:
        """The logits (N, K), without TF32 and without autocast."""
        self.cost.forwards += len(x)
        return self._in_a_layout(lambda: self._exact(x)[0])

    def is_fooled(self, x: Tensor, y: Tensor, targeted: bool = False) -> Tensor:
        """(N,) flags, decided by an exact pass: the predicted class is not y, or is y where the attack is targeted."""
        # Here the device is waited for anyway, to look at what seems to fool.
        if self.crafting.leave_fp16():
            self._forget_crafting()
        return self._without_near_ties(self.exact_logits(x), x, y, targeted)

    def confirm(self, logits: Tensor, x: Tensor, y: Tensor, targeted: bool = False) -> Tensor:
        """(N,) flags for images whose logits are known from crafting.

        Exact logits decide. Those from TF32, fp16 or bf16 nominate, and one exact pass over the nominated rows decides,
        and over those that are NaN.
        """
        fooled = is_success(logits, y, targeted)
        if self._crafts_exactly:
            return self._without_near_ties(logits, x, y, targeted) if fooled.any() else fooled
        # What is no number is no class, and would never seem to reach one; fp16 may have overflowed.
        nominated = (fooled | logits.isnan().any(1)).nonzero().squeeze(1)
        if len(nominated):
            fooled[nominated] = self.is_fooled(x[nominated], y[nominated], targeted)
        return fooled

    def _in_a_layout(self, passes: Callable[..., _Given], *arguments: Any) -> _Given:
        """What it gives, in another layout from now on where the model's code does not cope with channels last."""
        try:
            return passes(*arguments)
        except RuntimeError as error:
            if not (self.execution.channels_last and is_of_layout(error)):
                raise
        self._take_back()
        self._begin(replace(self.execution, channels_last=False))
        self._lend()
        return passes(*arguments)

    def _fast_logits(self, x: Tensor) -> Tensor:
        self.crafting.choose(x)
        (found,) = self._logits(x)
        if self.crafting.leave_fp16_now_and_then("logits"):
            self._forget_crafting()
            (found,) = self._logits(x)
        return found

    def _fast_slope(self, objective: Callable[..., Tensor], x: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        self.crafting.choose(x)
        if self.crafting.leave_fp16_for_gradients():
            self._forget_crafting()
        found = self._slope(objective, x, *rows)
        if self.crafting.leave_fp16_now_and_then("gradients"):
            self._forget_crafting()
            found = self._slope(objective, x, *rows)
        return found

    def _slope(self, objective: Callable[..., Tensor], x: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        if objective not in self._gradients:
            self._gradients[objective] = self._batched(partial(self.crafting.slope, objective))
        return self._gradients[objective](x, *rows)

    def _forget_crafting(self) -> None:
        self._logits.release()
        for batched in self._gradients.values():
            batched.release()
        self._gradients.clear()

    def _batched(self, work: Callable[..., tuple[Tensor, ...]]) -> Batched:
        size, captures = self.execution.resolved_batch_size, self.execution.captures
        return Batched(work, size, captures, self._pool, self._few_sizes)

    @property
    def _few_sizes(self) -> bool:
        return self.execution.torch_device.type == "cuda"

    @property
    def _crafts_exactly(self) -> bool:
        # Compiled kernels round otherwise. Whether images or logits are in float64 says nothing: a model may cast both.
        return self.execution.resolved_precision == "fp32" and not self.execution.compile

    def _without_near_ties(self, logits: Tensor, x: Tensor, y: Tensor, targeted: bool) -> Tensor:
        """Flags from exact logits; where the two largest are nearly equal a float64 twin of the model decides."""
        fooled = is_success(logits, y, targeted)
        top = logits.topk(2, dim=1).values
        largest = torch.where(logits.isfinite(), logits.abs(), 0).amax(1)  # classes that are masked have -inf
        near = (top[:, 0] - top[:, 1] <= _NEAR_TIE * largest).nonzero().squeeze(1)
        if not len(near) or x.dtype == torch.float64 or not isinstance(self.model, nn.Module):
            return fooled
        decided = self._double_logits(self.model, x[near])
        if decided is not None:
            fooled[near] = is_success(decided, y[near], targeted)
        return fooled

    @torch.no_grad()
    def _double_logits(self, model: nn.Module, x: Tensor) -> Tensor | None:
        """The logits of a float64 twin; None where there is none, since the model cannot be copied or casts itself."""
        self.cost.forwards += len(x)
        try:
            self._twin = twin = self._twin or copy.deepcopy(model).double()
            return in_batches(lambda rows: twin(rows.double()), x, size=self._exact.size)
        except Exception:  # whatever a stranger's module raises
            return None


@torch.no_grad()
def _exact_forward(model: Model, execution: Execution, x: Tensor) -> tuple[Tensor]:
    # On CUDA images as they come: channels last is slow there without tensor cores.
    x = x if x.is_cuda and execution.channels_last else execution.lay_out(x)
    with ieee_fp32():
        return (copied(model(x.clone())),)


def is_success(logits: Tensor, y: Tensor, targeted: bool) -> Tensor:
    """(N,) flags: the predicted class is not `y`, or is `y` where the attack is targeted; NaN predicts no class."""
    predicted = torch.where(logits.isnan().any(1), -1, logits.argmax(1))
    return predicted == y if targeted else predicted != y
