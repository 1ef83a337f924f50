"""One object that says how something runs, with defaults that suit the machine."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

Precision = Literal["auto", "fp32", "tf32", "bf16"]

# Steps from which on compiling a model on a GPU has paid for itself: about half a minute at 1 ms saved a step.
_STEPS_THAT_PAY = 5_000


@dataclass(frozen=True)
class Execution:
    """Where and how fast, never what: results agree up to rounding whatever is chosen here.

    Args:
        device: "cpu", "cuda", "cuda:1", ...; None uses CUDA where there is a GPU. Under `torchrun` "cuda" is the
            process's own GPU.
        precision: of training and of gradients. "fp32" is IEEE float32 with TF32 off; "auto" is bf16 for training on
            CUDA devices that have it, TF32 for attacks on CUDA, and fp32 elsewhere. Instead of TF32 attacks use fp16,
            which has as many digits, where its range is found to be enough. Weights, losses and decisions on outcomes
            are always float32.
        compile: use `torch.compile`; None does so on CUDA where training is long enough for it to pay off. Attacks
            compile only where it is True.
        cuda_graphs: replay steps from CUDA graphs; None does so on CUDA.
        batch_size: examples per pass in evaluation and attacks, halved where they do not fit; None suits the device.
        channels_last: use the layout in which convolutions are fast, where it suits the precision and the model's code
            allows it: `view` of a convolution's output does not.

    Example:
        >>> Execution(device="cpu").resolved_precision
        'fp32'
    """

    device: str | None = None
    precision: Precision = "auto"
    compile: bool | None = None
    cuda_graphs: bool | None = None
    batch_size: int | None = None
    channels_last: bool = True

    def __post_init__(self) -> None:
        if self.precision not in ("auto", "fp32", "tf32", "bf16"):
            raise ValueError(f"Expected `precision` to be auto, fp32, tf32 or bf16, but got {self.precision!r}.")
        if self.batch_size is not None and (not isinstance(self.batch_size, int) or self.batch_size < 1):
            raise ValueError(f"Expected `batch_size` to be a whole number of at least 1, but got {self.batch_size!r}.")
        if self.device:
            _check_device(self.device)
        _check_device(str(self.torch_device))  # under torchrun there may be fewer GPUs than processes
        if self.cuda_graphs and self.torch_device.type != "cuda":
            raise ValueError(f"Expected `cuda_graphs` to be used with a CUDA device, but got {self.torch_device}.")

    @property
    def torch_device(self) -> torch.device:
        """The device that is used."""
        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if device == torch.device("cuda") and "LOCAL_RANK" in os.environ:
            return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        return device

    @property
    def resolved_precision(self) -> Literal["fp32", "tf32", "bf16"]:
        """The precision that is used; "auto" is resolved as for training."""
        if self.precision != "auto":
            return self.precision
        return "bf16" if self.torch_device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"

    def for_attacks(self, device: torch.device) -> "Execution":
        """The same for examples on `device`, with bf16 only where it was chosen explicitly."""
        if self.device and torch.device(self.device).type != device.type:
            raise ValueError(f"Expected the examples on the device of `execution`, {self.device}, but got {device}.")
        auto: Precision = "tf32" if device.type == "cuda" else "fp32"
        return replace(self, device=str(device), precision=auto if self.precision == "auto" else self.precision)

    @property
    def resolved_batch_size(self) -> int:
        """Examples per pass where no gradient of weights is needed."""
        return self.batch_size or (2_000 if self.torch_device.type == "cuda" else 250)

    def compiles(self, steps: int) -> bool:
        """Whether to compile a run of so many steps."""
        if self.compile is None:
            return self.torch_device.type == "cuda" and steps >= _STEPS_THAT_PAY
        return self.compile

    @property
    def captures(self) -> bool:
        """Whether to replay steps from CUDA graphs."""
        return self.torch_device.type == "cuda" if self.cuda_graphs is None else self.cuda_graphs

    @property
    def memory_format(self) -> torch.memory_format:
        """The layout in which convolutions are fast: channels last, except for float32 on CUDA cores."""
        slow = self.torch_device.type == "cuda" and self.resolved_precision == "fp32"
        return torch.channels_last if self.channels_last and not slow else torch.contiguous_format

    def place(self, model: nn.Module) -> nn.Module:
        """The model on the device, in the layout that suits it."""
        model = model.to(self.torch_device)
        if self.memory_format == torch.channels_last:
            return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
        for parameter in model.parameters():
            parameter.data = laid_out(parameter.data, torch.contiguous_format)
        return model

    def lay_out(self, x: Tensor) -> Tensor:
        """Images in the layout that suits the device and the model."""
        if x.dim() != 4:
            return x
        return x.contiguous(memory_format=self.memory_format) if self.channels_last else laid_out(x, self.memory_format)

    @contextmanager
    def arithmetic(self, half: bool = False) -> Iterator[None]:
        """Forward passes in the chosen precision; with `half` in fp16 instead of TF32.

        Both have ten fraction bits, and fp16 moves half the bytes. Its range is small: gradients need a scale.
        """
        lower = {"bf16": torch.bfloat16, "tf32": torch.float16 if half else None}.get(self.resolved_precision)
        kind, enabled = self.torch_device.type, lower is not None
        # No cache: inside somebody else's autocast it would outlive this block, and a graph would keep old weights.
        with self.float32(), torch.autocast(kind, dtype=lower, enabled=enabled, cache_enabled=False):
            yield

    def float32(self) -> AbstractContextManager[None]:
        """Float32 with or without TF32, as chosen: for backward passes, for which autocast is not meant."""
        return _tf32(self.resolved_precision != "fp32")


def _check_device(name: str) -> None:
    """Refuse a device that this machine does not have, without waking a GPU that it has."""
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            torch.empty(0, device=device).cpu()
    except (RuntimeError, AssertionError) as error:  # torch raises either where it was built without that kind
        raise ValueError(
            f"Expected `device` to be one that this machine has, such as cpu, cuda or cuda:1, but got {name!r}."
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"Expected `device` to be one that this machine has, but got {name!r} without CUDA.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"Expected `device` to be one that this machine has, but got {name!r} with {torch.cuda.device_count()} "
            "CUDA devices."
        )


def laid_out(tensor: Tensor, memory_format: torch.memory_format) -> Tensor:
    """Copy to that layout. `contiguous` would not change the strides of one channel, which decide the kernel too."""
    if tensor.dim() != 4:
        return tensor
    return torch.empty_like(tensor, memory_format=memory_format).copy_(tensor)


def is_of_layout(error: RuntimeError) -> bool:
    """Whether code failed because `view` cannot flatten a tensor that is channels last."""
    return "view size is not compatible" in str(error) or "Cannot view a tensor" in str(error)


@contextmanager
def ieee_fp32() -> Iterator[None]:
    """Float32 as IEEE defines it, without TF32 and autocast: whether an example is fooled is decided in it."""
    with _tf32(False), torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
        yield


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Switch TF32 on or off; off also for the CPU's equivalent.

    Torch has two sets of names for the same switches, and refuses to read the old ones after only the new ones were
    used. So both are written, the old ones first, because they write some of the new ones.
    """
    backends: Any = torch.backends
    cuda = backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn
    cpu = backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn
    before = [(switch, switch.fp32_precision) for switch in (*cuda, *cpu)]
    name = None  # where only the new names were used
    with suppress(RuntimeError):
        name = torch.get_float32_matmul_precision()
    backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = allowed
    try:
        for switch in cuda if allowed else (*cuda, *cpu):
            switch.fp32_precision = "tf32" if allowed else "ieee"
        yield
    finally:
        torch.set_float32_matmul_precision(name or ("high" if before[0][1] == "tf32" else "highest"))
        backends.cudnn.allow_tf32 = before[1][1] == "tf32"
        for switch, precision in before:
            switch.fp32_precision = precision
