"""Compile the Triton kernels for a GPU that need not be there: the interpreter does not check types, this does.

Run by test_triton_compiles.py in a process of its own, because the interpreter is chosen when Triton is imported.
"""

import inspect

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pclc.execution import pool_triton
from pclc.losses import pc_triton

HOPPER = GPUTarget("cuda", 90, 32)
LABELS = {"target", "hard_class"}
IN_DTYPE = {"logits", "grad", "y", "out"}
NUMBERS = {"margin_high", "margin_low", "logit_weight_high", "logit_weight_low"}
COUNTS = {"H", "W", "C", "total", "R", "K", "D", "ln", "lk", "ld", "gn", "gk", "gd", "rn", "rd", "ignore_index"}


def compile_kernel(kernel: triton.JITFunction, dtype: str, **flags: object) -> None:
    acc = "fp64" if dtype == "fp64" else "fp32"
    if "ACC" in inspect.signature(kernel.fn).parameters:
        flags["ACC"] = tl.float64 if acc == "fp64" else tl.float32
    signature, constants = {}, {}
    for name in inspect.signature(kernel.fn).parameters:
        if name in flags:
            signature[name], constants[name] = "constexpr", flags[name]
        elif name in LABELS:
            signature[name] = "*i64"
        elif name in NUMBERS:
            signature[name] = "fp32"
        elif name in COUNTS:
            signature[name] = "i32"
        else:
            signature[name] = f"*{dtype if name in IN_DTYPE else acc}"
    triton.compile(ASTSource(kernel, signature, constants), target=HOPPER, options={"num_warps": 1})


if __name__ == "__main__":
    for dtype, soft, whole in [
        ("fp64", False, True),
        ("fp64", True, False),
        ("bf16", True, True),
        ("fp32", False, False),
    ]:
        tile = {"BLOCK_R": 2, "BLOCK_K": 16, "SOFT": soft, "HARD": not soft}
        compile_kernel(pc_triton._forward_kernel, dtype, **tile, AVERAGE=soft, WHOLE=whole, SMALLEST=-1e30)
        compile_kernel(pc_triton._backward_kernel, dtype, **tile)
    for dtype in ("fp64", "fp32"):
        compile_kernel(pc_triton._mean_kernel, dtype, BLOCK=256)
    for dtype in ("fp16", "bf16", "fp32", "fp64"):
        for kernel in (pool_triton._pool_kernel, pool_triton._gradient_kernel):
            compile_kernel(kernel, dtype, BLOCK=pool_triton._BLOCK)
    print("compiled")
