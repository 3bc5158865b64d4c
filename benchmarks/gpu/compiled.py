"""The Triton kernels compiled ahead of time, without a GPU: registers, spills and shared memory per target."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from mxd.trainer.layers import triton_ops

TARGETS = {
    **{f"sm_{capability}": GPUTarget("cuda", capability, 32) for capability in (80, 86, 89, 90, 100)},
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
"""A100; RTX 30, A10; RTX 40, L4; H100, H200; B200; MI300."""
DTYPES = ("fp32", "bf16")


class KernelForm(NamedTuple):
    """A kernel as ``triton.compile`` takes it: what is compiled on a GPU at the first call."""

    name: str
    kernel: Any
    signature: dict[str, str]
    """Type of each argument; "constexpr" for those in ``constants``."""
    constants: Mapping[str, int | None]
    divisible: tuple[str, ...]
    """Arguments that are multiples of 16, as Triton finds them at a call."""
    num_warps: int


def kernel_forms(width: int, values: str = "fp32", k: int = 32) -> Iterator[KernelForm]:
    """All forms in which the kernels are called for rows of a width, for ahead-of-time compilation.

    Args:
        width: width of the rows.
        values: Triton's name of the dtype of rows and weights, such as fp32 or bf16.
        k: number of active experts K.
    """
    columns, num_warps = triton_ops.tile(width)
    sizes = tuple(name for name, size in (("k", k), ("width", width)) if size % 16 == 0)
    tile = {"PAIRS": triton_ops.PAIRS, "COLUMNS": columns}
    pairs = {"rows": f"*{values}", "weights": f"*{values}"}
    for id_type in ("i64", "i32"):
        ends = {"k": "i32", "width": "i32", "PAIRS": "constexpr", "COLUMNS": "constexpr"}
        whole = pairs | {"ids": f"*{id_type}"}
        yield KernelForm(
            f"mix_rows[{id_type}]",
            triton_ops.sum_kernel,
            whole | {"offsets": "constexpr", "sums": f"*{values}", "totals": "constexpr"} | ends,
            {"offsets": None, "totals": None, **tile},
            ("rows", "weights", "ids", "sums", *sizes),
            num_warps,
        )
        yield KernelForm(
            f"sum_by_expert[{id_type}]",
            triton_ops.sum_kernel,
            whole | {"offsets": f"*{id_type}", "sums": f"*{values}", "totals": f"*{values}"} | ends,
            tile,
            ("rows", "weights", "ids", "offsets", "sums", "totals", *sizes),
            num_warps,
        )
        yield KernelForm(
            f"row_dots[{id_type}]",
            triton_ops.dots_kernel,
            {"left": f"*{values}", "table": f"*{values}", "ids": f"*{id_type}", "dots": f"*{values}"} | ends,
            {"PAIRS": triton_ops.DOT_PAIRS, "COLUMNS": triton_ops.DOT_COLUMNS},
            ("left", "table", "ids", "dots", *sizes),
            4,
        )


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
