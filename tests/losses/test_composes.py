"""The losses inside the rest of PyTorch: compile, torch.func, autocast, GradScaler, DDP."""

import os
import socket
from contextlib import nullcontext

import pytest
import torch
import torch.multiprocessing as mp
from torch import nn

import pclc
from pclc.functional import complement_entropy, guided_complement_entropy, pc_loss

LOSSES = {
    "hard": pc_loss,
    "soft": lambda a, y, **k: pc_loss(a, y, constraint="soft", average_classes=True, **k),
    "gce": guided_complement_entropy,
    "cot": complement_entropy,
}
each_loss = pytest.mark.parametrize("name", LOSSES)
each_path = pytest.mark.usefixtures("each_path")


def example(K: int = 6, N: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(N, K, dtype=torch.float64), torch.randint(0, K, (N,))


@each_loss
def test_compile_fullgraph(name: str) -> None:
    loss = LOSSES[name]
    logits, target = example()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    a, b = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    expected, got = loss(a, target), compiled(b, target)
    torch.testing.assert_close(got, expected)
    expected.backward()
    got.backward()
    torch.testing.assert_close(b.grad, a.grad)


def test_compile_with_inductor() -> None:
    """The whole way, with a model in front: generated code around the custom operators."""
    torch.manual_seed(0)
    model = nn.Linear(7, 5)
    x, y = torch.randn(9, 7), torch.randint(0, 5, (9,))
    criterion = pclc.PCLoss()
    expected = torch.autograd.grad(criterion(model(x), y), model.weight)[0]
    compiled = torch.compile(lambda x, y: criterion(model(x), y), fullgraph=True)
    got = torch.autograd.grad(compiled(x, y), model.weight)[0]
    torch.testing.assert_close(got, expected)


@each_path
@each_loss
def test_func_grad_and_vmap(name: str) -> None:
    """Per-example gradients, as people compute them with torch.func."""
    loss = LOSSES[name]
    logits, target = example()
    per_example = torch.func.vmap(torch.func.grad(loss))(logits, target)
    for i in range(len(logits)):
        leaf = logits[i].clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(leaf, target[i]), leaf)
        torch.testing.assert_close(per_example[i], expected)
    values = torch.func.vmap(loss, in_dims=(1, None))(logits.unsqueeze(1).expand(-1, 3, -1), target)
    torch.testing.assert_close(values, loss(logits, target).expand(3))


@each_path
@each_loss
def test_func_hessian(name: str) -> None:
    """Forward over reverse mode, and reverse over reverse."""
    loss = LOSSES[name]
    logits, target = example(N=1)
    forward_over_reverse = torch.func.hessian(loss)(logits[0], target[0])
    reverse_over_reverse = torch.autograd.functional.hessian(lambda a: loss(a, target[0]), logits[0])
    torch.testing.assert_close(forward_over_reverse, reverse_over_reverse)


@each_path
@each_loss
def test_second_backward(name: str) -> None:
    """A gradient penalty: the gradient's norm as a loss."""
    loss = LOSSES[name]
    logits, target = example()
    leaf = logits.clone().requires_grad_()
    (grad,) = torch.autograd.grad(loss(leaf, target), leaf, create_graph=True)
    grad.square().sum().backward()
    step = 1e-6 * torch.randn_like(logits)

    def penalty(a: torch.Tensor) -> torch.Tensor:
        a = a.clone().requires_grad_()
        (g,) = torch.autograd.grad(loss(a, target), a)
        return g.square().sum()

    difference = (penalty(logits + step) - penalty(logits - step)) / 2
    torch.testing.assert_close(difference, (leaf.grad * step).sum(), rtol=1e-4, atol=1e-12)


@each_path
@each_loss
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_traced(name: str) -> None:
    """By torch.jit, which refuses what its operators have no signature for."""
    logits, target = example()
    traced = torch.jit.trace(LOSSES[name], (logits, target), check_trace=False)
    torch.testing.assert_close(traced(2 * logits, target), LOSSES[name](2 * logits, target))


@each_loss
def test_autocast(name: str) -> None:
    model = nn.Linear(8, 6)
    x, y = torch.randn(4, 8), torch.randint(0, 6, (4,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
        loss = LOSSES[name](logits, y)
    assert logits.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    loss.backward()
    assert model.weight.grad is not None
    assert model.weight.grad.isfinite().all()


@each_loss
def test_grad_scaler(name: str) -> None:
    """Scaled, unscaled, stepped: the same step as without a scaler."""
    torch.manual_seed(0)
    plain, scaled = nn.Linear(8, 6), nn.Linear(8, 6)
    scaled.load_state_dict(plain.state_dict())
    x, y = torch.randn(4, 8), torch.randint(0, 6, (4,))
    for model, scaler in ((plain, None), (scaled, torch.amp.GradScaler("cpu", init_scale=1024.0))):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = LOSSES[name](model(x), y)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    torch.testing.assert_close(scaled.weight, plain.weight)


def _train_one_rank(rank: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 6).double())
    x, y = torch.randn(4, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 3])
    pclc.PCLoss()(model(x[rank * 2 : rank * 2 + 2]), y[rank * 2 : rank * 2 + 2]).backward()
    torch.save(model.module.weight.grad, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_ddp(tmp_path: object) -> None:
    """Two processes with half a batch each have the gradient of one with the whole."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(_train_one_rank, args=(port, str(tmp_path)), nprocs=2)
    torch.manual_seed(0)
    model = nn.Linear(8, 6).double()
    x, y = torch.randn(4, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 3])
    pclc.PCLoss()(model(x), y).backward()
    for rank in range(2):
        torch.testing.assert_close(torch.load(f"{tmp_path}/{rank}.pt"), model.weight.grad)


@pytest.mark.parametrize("constraint", ["hard", "soft"])
def test_operators_follow_pytorchs_rules(constraint: str) -> None:
    """Schemas, fake tensors, aliasing: torch.library's own examination."""
    logits, target = torch.randn(3, 5, 2), torch.randint(0, 5, (3, 2))
    terms = (0.995, 0.05, constraint == "soft", False, -100, constraint == "hard")
    torch.library.opcheck(torch.ops.pclc.pc_rows, (logits, target, *terms))
    rows = torch.ops.pclc.pc_rows(logits, target, *terms)[1:]
    torch.library.opcheck(torch.ops.pclc.pc_rows_backward, (torch.ones(3, 2), logits, target, list(rows), *terms))


def test_memory_of_the_graph() -> None:
    """Between forward and backward the graph holds the logits and numbers per row, nothing else of their size."""
    logits, target = torch.randn(64, 1000, requires_grad=True), torch.randint(0, 1000, (64,))
    held: list[torch.Tensor] = []

    def remember(tensor: torch.Tensor) -> torch.Tensor:
        held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        pc_loss(logits, target)
    others = {t.untyped_storage().data_ptr(): t.numel() for t in held if t.data_ptr() != logits.data_ptr()}
    assert sum(others.values()) <= 16 * 64


def test_a_small_mean_takes_few_calls() -> None:
    """Calls are all that it costs: a training step of a small network on the CPU may not be half loss."""
    logits, target = torch.randn(128, 10, requires_grad=True), torch.randint(0, 10, (128,))
    with torch.profiler.profile() as profile:
        pc_loss(logits, target).backward()
    assert sum(event.name.startswith("aten::") for event in profile.events()) < 250


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
def test_compiled_where_no_gradient_is_asked_for(mode):
    """As a compiled step meets it in validation."""
    logits, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    with mode():
        compiled = torch.compile(pc_loss, backend="aot_eager", fullgraph=True)(logits, y)
    torch.testing.assert_close(compiled, pc_loss(logits, y))


def test_the_plain_formula_does_not_cancel_where_the_true_class_is_nearly_sure() -> None:
    """With many classes 1 - f_y is multiplied by their number, and its rounding with it."""
    logits, target = torch.zeros(1, 1000), torch.tensor([0])
    logits[0, 0] = 16.0
    grad, expected = (
        torch.func.grad(lambda x: pc_loss(x, target, margin=1, logit_weight=0))(a) for a in (logits, logits.double())
    )
    torch.testing.assert_close(grad.double(), expected, rtol=1e-4, atol=0)
