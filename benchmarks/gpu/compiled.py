"""The Triton kernels compiled ahead of time, without a GPU: registers, spills and shared memory per target."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from mxd.trainer.layers.triton_ops import KernelForm, kernel_forms

TARGETS = {
    **{f"sm_{capability}": GPUTarget("cuda", capability, 32) for capability in (80, 86, 89, 90, 100)},
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
"""A100; RTX 30, A10; RTX 40, L4; H100, H200; B200; MI300."""
DTYPES = ("fp32", "bf16")


@dataclass(frozen=True)
class CompiledKernel:
    """Resources of a compiled kernel."""

    target: str
    kernel: str
    dtype: str
    width: int
    """Width of the rows."""
    registers: int
    """Registers per thread."""
    spilled_bytes: int
    """Bytes per thread that did not fit into registers."""
    shared_bytes: int
    """Shared memory per program."""
    narrow_products: tuple[str, ...]
    """32-bit products, except those with a constant (the size of a tile): offsets into large tables need 64 bits."""


def compiled_kernels(widths: Sequence[int]) -> Iterator[CompiledKernel]:
    """Compile every form of every kernel, in both dtypes, for every target."""
    for width in widths:
        for dtype in DTYPES:
            for form in kernel_forms(width, dtype):
                for target in TARGETS:
                    yield _compiled(form, dtype, width, target)


def _compiled(form: KernelForm, dtype: str, width: int, target: str) -> CompiledKernel:
    place = {name: (number,) for number, name in enumerate(form.signature)}
    source = ASTSource(
        fn=form.kernel,
        signature=form.signature,
        constexprs={place[name]: value for name, value in form.constants.items()},
        attrs={place[name]: [["tt.divisibility", 16]] for name in form.divisible},
    )
    result = triton.compile(source, target=TARGETS[target], options={"num_warps": form.num_warps})
    registers, spilled = _amd_usage(result.asm["amdgcn"]) if "amdgcn" in result.asm else _usage(result.asm["cubin"])
    constants = set(re.findall(r"(%\S+) = arith\.constant", result.asm["ttir"]))
    products = re.findall(r"arith\.muli (%\S+), (%\S+) : (?:i32|tensor<\S+xi32>)", result.asm["ttir"])
    narrow = [" × ".join(operands) for operands in products if constants.isdisjoint(operands)]
    return CompiledKernel(target, form.name, dtype, width, registers, spilled, result.metadata.shared, tuple(narrow))


def _usage(binary: bytes) -> tuple[int, int]:
    """Registers and spilled bytes of a kernel for NVIDIA GPUs."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        listed = subprocess.run([_cuobjdump(), "-res-usage", file.name], capture_output=True, text=True, check=True)
    registers, stack, spilled = (
        int(re.findall(rf"\b{name}:(\d+)", listed.stdout)[-1]) for name in ("REG", "STACK", "LOCAL")
    )
    return registers, stack + spilled


@cache
def _cuobjdump() -> Path:
    """Path of the program, which Triton's package includes."""
    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def _amd_usage(assembly: str) -> tuple[int, int]:
    """Registers and spilled bytes of a kernel for AMD GPUs."""
    registers, private = (
        int(re.findall(rf"\.{name}: *(\d+)", assembly)[-1]) for name in ("vgpr_count", "private_segment_fixed_size")
    )
    return registers, private


if __name__ == "__main__":
    # A program of its own: Triton decides at its import whether kernels are compiled or interpreted.
    rows = [json.dumps(asdict(kernel)) for kernel in compiled_kernels([int(word) for word in sys.argv[1:]])]
    print("[\n" + ",\n".join(rows) + "\n]")
