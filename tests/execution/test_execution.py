"""How things run: the settings, batches that fit, captured steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from pclc.execution import Execution, capture, captured, ieee_fp32, in_batches


def test_settings_on_the_cpu() -> None:
    execution = Execution(device="cpu")
    assert execution.torch_device == torch.device("cpu")
    assert execution.resolved_precision == "fp32"
    assert not execution.captures
    assert not execution.compiles(10**9), "on the CPU compiling is for those who ask for it"
    assert Execution(device="cpu", compile=True).compiles(1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"precision": "fp8"}, "Expected `precision` to be auto, fp32, tf32 or bf16, but got 'fp8'"),
        ({"device": "gpu"}, "Expected `device` to be one that this machine has, .* but got 'gpu'"),
        ({"device": "meta"}, "but got 'meta'"),
        ({"batch_size": 0}, "Expected `batch_size` to be a whole number of at least 1, but got 0"),
        ({"batch_size": 2.5}, "Expected `batch_size` to be a whole number of at least 1, but got 2.5"),
        ({"batch_size": "4"}, "Expected `batch_size` to be a whole number of at least 1, but got '4'"),
        ({"device": "cpu", "cuda_graphs": True}, "Expected `cuda_graphs` to be used with a CUDA device"),
    ],
)
def test_refusals(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Execution(**arguments)  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="'cuda' without CUDA"):
        Execution(device="cuda")


def test_a_device_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Execution(device="cuda:1").torch_device.index == 1
    with pytest.raises(ValueError, match="but got 'cuda:2' with 2 CUDA devices"):
        Execution(device="cuda:2")


@pytest.mark.parametrize("device", [None, "cuda"])
def test_a_gpu_of_its_own_under_torchrun(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Execution(device=device).torch_device == torch.device("cuda:1")
    assert Execution(device="cuda:0").torch_device == torch.device("cuda:0")
    assert Execution(device="cpu").torch_device == torch.device("cpu")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match="but got 'cuda:2' with 2 CUDA devices"):
        Execution(device=device)


def test_precision_holds_inside_and_is_put_back() -> None:
    linear = torch.nn.Linear(4, 4)
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with Execution(device="cpu", precision="bf16").arithmetic():
        assert linear(torch.randn(2, 4)).dtype == torch.bfloat16
        assert torch.backends.cudnn.allow_tf32
        with ieee_fp32():
            assert linear(torch.randn(2, 4)).dtype == torch.float32
            assert not torch.backends.cudnn.allow_tf32
            assert not torch.backends.cuda.matmul.allow_tf32
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


def switches() -> dict[str, str]:
    """Every switch of torch for float32, under its new name and, where torch still reads it, its old one."""
    b: Any = torch.backends
    new = {"cuda": b.cuda.matmul, "conv": b.cudnn.conv, "rnn": b.cudnn.rnn, "cpu": b.mkldnn.matmul, "all": b}
    found = {name: switch.fp32_precision for name, switch in new.items()}
    try:
        return {**found, "old": torch.get_float32_matmul_precision()}
    except RuntimeError:
        return found


@pytest.fixture
def _switches_back() -> Iterator[None]:
    yield
    torch.backends.fp32_precision = "none"  # type: ignore[attr-defined]
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.fp32_precision = torch.backends.mkldnn.matmul.fp32_precision = "none"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_switches_back")
@pytest.mark.parametrize(
    "choose",
    [
        lambda: None,
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
        lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
        lambda: setattr(torch.backends, "fp32_precision", "tf32"),
        lambda: setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee"),  # type: ignore[attr-defined]
    ],
    ids=["nothing", "medium", "old name", "new name", "new name for all", "new name for convolutions"],
)
def test_whatever_somebody_chose_is_off_inside_and_back_afterwards(choose: Callable[[], None]) -> None:
    choose()
    before = switches()
    with Execution(device="cpu", precision="tf32").arithmetic():
        assert {switches()[name] for name in ("cuda", "conv", "rnn")} == {"tf32"}
        with ieee_fp32():
            assert {switches()[name] for name in ("cuda", "conv", "rnn", "cpu")} == {"ieee"}
            assert switches()["old"] == "highest"
    assert before.items() <= switches().items()


def test_weights_that_changed_are_seen_inside_somebody_elses_autocast() -> None:
    linear, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    execution = Execution(device="cpu", precision="bf16")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for value in (1.0, 2.0):
            torch.nn.init.constant_(linear.weight, value)
            torch.nn.init.zeros_(linear.bias)
            with execution.arithmetic():
                assert linear(x)[0, 0] == 2 * value


def test_batches_are_put_together_in_order() -> None:
    x, y = torch.arange(10), torch.arange(10) * 2
    assert in_batches(lambda a, b: a + b, x, y, size=3).equal(x * 3)
    assert in_batches(lambda a: a.float(), x[:0], size=3).shape == (0,)


def test_a_batch_that_does_not_fit_is_halved_aloud() -> None:
    sizes = []

    def work(a: torch.Tensor) -> torch.Tensor:
        sizes.append(len(a))
        if len(a) > 3:
            raise torch.OutOfMemoryError
        return a

    with pytest.warns(UserWarning, match="continuing with 2 examples at a time"):
        result = in_batches(work, torch.arange(9), size=8)
    assert result.equal(torch.arange(9))
    assert sizes == [8, 4, 2, 2, 2, 2, 1]


def test_a_single_example_that_does_not_fit_is_an_error() -> None:
    def work(a: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError), pytest.warns(UserWarning, match="did not fit"):
        in_batches(work, torch.arange(9), size=2)


def test_a_recording_that_fails_does_not_leave_its_stream_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    caller, side = Mock(), Mock()
    current = caller

    @contextmanager
    def on_stream(stream: Mock) -> Iterator[None]:
        nonlocal current
        before, current = current, stream
        try:
            yield
        finally:
            current = before

    @contextmanager
    def recording(graph: Mock, pool: None, stream: Mock) -> Iterator[None]:
        nonlocal current
        current = stream
        yield  # as in torch, where the end of a recording that failed is an error, and what comes after it is not done

    cuda = SimpleNamespace(
        device=lambda device: nullcontext(), current_device=lambda: 0, current_stream=lambda: current,
        stream=on_stream, CUDAGraph=Mock, graph=recording,
    )  # fmt: skip
    monkeypatch.setattr(capture, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(capture, "_side_stream", lambda device: side)
    with pytest.raises(RuntimeError, match="not permitted"):
        captured(Mock(side_effect=[None, RuntimeError("operation not permitted")]), warm_ups=1)
    assert current is caller


@pytest.mark.cuda
def test_captured_work_is_replayed() -> None:
    total, step = torch.zeros(1, device="cuda"), torch.ones(1, device="cuda")

    def work() -> None:
        total.add_(step)

    replay = captured(work, total.device)
    total.zero_()
    step.fill_(2)
    for _ in range(5):
        replay()
    assert float(total) == 10
