"""The model under attack, as attacks ask it: logits and gradients for any number of rows, fast, with the books kept."""

import copy
import weakref
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from pclc.attacks.cost import Cost
from pclc.attacks.gradients import input_gradient, is_zero
from pclc.attacks.types import Model
from pclc.execution import Batched, Execution, ieee_fp32, in_batches, made_ready

# Logits that differ by less than this share of the largest may swap places in float32.
_NEAR_TIE = 1e-5
_EXACT_ROWS = 500

# Rows on which a model that was made ready is compared with itself, and by how much of the largest logit it may differ:
# in float32, and with the ten bits of TF32 and fp16.
_COMPARED_ROWS, _SAME, _NEARLY_SAME = 16, 1e-3, 1e-2


class Slope(NamedTuple):
    """What one forward and backward pass tells about each row."""

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
        self.model, self.execution = model, execution
        self.cost = Cost()
        self._pool = torch.cuda.graph_pool_handle() if execution.captures else None
        # Where crafting is exact its logits decide, and they are to be those of the model itself.
        self._fast = self._ready = model
        if isinstance(model, nn.Module) and execution.resolved_precision != "fp32":
            self._ready = made_ready(model, execution)
        self._has_chosen = self._half = False
        # Weak, so that a victim nobody holds is gone at once with its graphs, and waits for no collector of cycles.
        self._me = weakref.proxy(self)
        self._logits = self._batched(partial(Victim._forward, self._me))
        # Eager: few rows pass here, each once. On an H200 float32 convolutions are slower in larger batches.
        exact = partial(Victim._exact_forward, self._me)
        self._exact = Batched(exact, min(_EXACT_ROWS, execution.resolved_batch_size))
        self._gradients: dict[Callable[..., Tensor], Batched] = {}
        self._twin: nn.Module | None = None
        self._lent: list[tuple[nn.Parameter, Tensor]] = []

    def __enter__(self) -> Self:
        """Lend the model its weights in the layout that is fast on the CPU; on CUDA the images' layout decides."""
        if self.execution.torch_device.type == "cpu" and isinstance(self.model, nn.Module):
            for parameter in self.model.parameters():
                if parameter.dim() == 4:
                    self._lent.append((parameter, parameter.data))
                    # Not `contiguous`: it leaves weights of a single channel as they are, and those decide the kernel.
                    lent = torch.empty_like(parameter.data, memory_format=torch.channels_last)
                    parameter.data = lent.copy_(parameter.data)
        return self

    def __exit__(self, *error: object) -> None:
        """Take them back, and let go of the graphs, which hold gigabytes."""
        for parameter, data in self._lent:
            parameter.data = data
        self._lent.clear()
        for batched in (self._logits, self._exact, *self._gradients.values()):
            batched.release()
        self._gradients.clear()

    def logits(self, x: Tensor) -> Tensor:
        """The logits (N, K) in the precision of crafting."""
        self._choose(x)
        self.cost.forwards += len(x)
        return self._logits(x)[0]

    def gradient(self, objective: Callable[..., Tensor], x: Tensor, *rows: Tensor) -> Slope:
        """Logits, value and gradient of `objective(logits, *rows)` at x; `rows` have one row an example, as y has."""
        self._choose(x)
        if objective not in self._gradients:
            self._gradients[objective] = self._batched(partial(Victim._slope, self._me, objective))
        logits, value, grad, zero = self._gradients[objective](x, *rows)
        self.cost.add_gradients(zero)
        return Slope(logits, value, grad)

    def exact_logits(self, x: Tensor) -> Tensor:
        """The logits (N, K), without TF32 and without autocast."""
        self.cost.forwards += len(x)
        return self._exact(x)[0]

    def is_fooled(self, x: Tensor, y: Tensor, targeted: bool = False) -> Tensor:
        """(N,) flags, decided by an exact pass: the predicted class is not y, or is y where the attack is targeted."""
        self._leave_fp16_after_overflow()
        return self._without_near_ties(self.exact_logits(x), x, y, targeted)

    def confirm(self, logits: Tensor, x: Tensor, y: Tensor, targeted: bool = False) -> Tensor:
        """(N,) flags for images whose logits are known from crafting.

        Exact logits decide. Those from TF32 or bf16 nominate, and one exact pass over the nominated rows decides.
        """
        fooled = is_success(logits, y, targeted)
        if self._crafts_exactly:
            return self._without_near_ties(logits, x, y, targeted) if fooled.any() else fooled
        nominated = fooled.nonzero().squeeze(1)
        if len(nominated):
            fooled[nominated] = self.is_fooled(x[nominated], y[nominated], targeted)
        return fooled

    def _batched(self, work: Callable[..., tuple[Tensor, ...]]) -> Batched:
        return Batched(work, self.execution.resolved_batch_size, self.execution.captures, self._pool)

    @property
    def _crafts_exactly(self) -> bool:
        # Compiled kernels round otherwise. Whether images or logits are in float64 says nothing: a model may cast both.
        return self.execution.resolved_precision == "fp32" and not self.execution.compile

    def _choose(self, x: Tensor) -> None:
        """Craft on the model made ready where it gives what the model gives, else on the model as it is."""
        if self._has_chosen:
            return
        self._has_chosen = True
        if self._ready is not self.model and self._is_same(x[:_COMPARED_ROWS]):
            self._fast = self._ready
            self._half = x.is_cuda and self.execution.resolved_precision == "tf32" and self._can_halve(x)
        self._has_overflowed = torch.zeros((), dtype=torch.bool, device=x.device)  # graphs write into it
        if self.execution.compile:
            self._fast = torch.compile(self._fast)

    @torch.no_grad()
    def _is_same(self, x: Tensor) -> bool:
        try:
            with ieee_fp32():
                own, ready = self.model(x.clone()), self._ready(x.clone())
            with self.execution.arithmetic():
                self._ready(x.clone())  # code may not cope with a last layer in float32
            return bool(((ready - own).abs() <= _SAME * own.abs().amax()).all())
        except Exception:  # whatever a stranger's module raises; the model itself will say it better
            return False

    @torch.no_grad()
    def _can_halve(self, x: Tensor) -> bool:
        """Whether fp16 is enough for the model's numbers, and its logits keep more digits than fp16 has."""
        x = torch.cat([x[:_COMPARED_ROWS], 1 - x[:_COMPARED_ROWS]])  # images that are as different as can be
        try:
            with ieee_fp32():
                own = self.model(x.clone())
            with self.execution.arithmetic(half=True):
                half = self._ready(x.clone())
            close = (half - own).abs() <= _NEARLY_SAME * own.abs().amax()
            finer = half != half.half().to(half.dtype)
            return bool(close.all()) and bool(finer.any(0).all())  # of each class: they may come from several layers
        except Exception:  # code that cannot cope with fp16
            return False

    def _leave_fp16_after_overflow(self) -> None:
        """Called where the device is waited for anyway, to look at what seems to fool."""
        if self._half and self._has_overflowed:
            self._half = False
            self._logits.release()  # graphs have fp16 in them

    def _placed(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=self.execution.memory_format) if x.dim() == 4 else x

    # Images and logits are copied: a model may write into its input, and may use its output's memory again.

    @torch.no_grad()
    def _forward(self, x: Tensor) -> tuple[Tensor]:
        with self.execution.arithmetic(self._half):
            logits = _copied(self._fast(self._placed(x).clone()))
        if self._half:
            finite = logits.isfinite()
            self._has_overflowed.logical_or_(~finite.all())
            # NaN looks like success, which is looked at; an infinite logit of the true class would not be.
            logits = torch.where(finite, logits, torch.nan)
        return (logits,)

    @torch.no_grad()
    def _exact_forward(self, x: Tensor) -> tuple[Tensor]:
        with ieee_fp32():
            return (_copied(self.model((x if x.is_cuda else self._placed(x)).clone())),)

    def _slope(self, objective: Callable[..., Tensor], x: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        with self.execution.arithmetic():
            slope = input_gradient(self._fast, objective, self._placed(x), *rows)
        return slope[0], slope[1], slope[2].contiguous(), is_zero(slope[2])

    def _without_near_ties(self, logits: Tensor, x: Tensor, y: Tensor, targeted: bool) -> Tensor:
        """Flags from exact logits; where the two largest are nearly equal a float64 twin of the model decides."""
        fooled = is_success(logits, y, targeted)
        top = logits.topk(2, dim=1).values
        near = (top[:, 0] - top[:, 1] <= _NEAR_TIE * logits.abs().amax(1)).nonzero().squeeze(1)
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


def _copied(logits: Tensor) -> Tensor:
    return logits.clone() if isinstance(logits, Tensor) else logits  # what else it may be is told by its checks


def is_success(logits: Tensor, y: Tensor, targeted: bool) -> Tensor:
    """(N,) flags: the predicted class is not `y`, or is `y` where the attack is targeted."""
    predicted = predicted_class(logits)
    return predicted == y if targeted else predicted != y


def predicted_class(logits: Tensor) -> Tensor:
    """(N,) the class of the largest logit; -1, which is no class, where a logit is NaN."""
    return torch.where(logits.isnan().any(1), -1, logits.argmax(1))
