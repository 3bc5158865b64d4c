"""The Triton kernels, compiled for GPUs that this machine does not have."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.gpu.compiled import DTYPES, TARGETS, kernel_forms
from tests.helpers.processes import ROOT

SMALLEST_SHARED_MEMORY = 48 << 10
"""Bytes that a program may use on every target without asking for more."""
MOST_REGISTERS = 128
"""Registers per thread with which 16 warps still fit on a multiprocessor."""


@pytest.fixture(scope="module")
def kernels() -> list[dict[str, Any]]:
    """Every form of every kernel for Llama-3.2-3B's width. This process has the kernels for the interpreter."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("TRITON_INTERPRET")
    command = [sys.executable, "-m", "benchmarks.gpu.compiled", "3072"]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert finished.returncode == 0, finished.stderr
    rows: list[dict[str, Any]] = json.loads(finished.stdout)
    return rows


def test_every_form_compiles_for_every_target(kernels: list[dict[str, Any]]) -> None:
    expected = {(target, form.name, dtype) for target in TARGETS for dtype in DTYPES for form in kernel_forms(3072)}
    assert {(row["target"], row["kernel"], row["dtype"]) for row in kernels} == expected
    assert {name.partition("[")[2] for _, name, _ in expected} == {"i32]", "i64]"}


def test_nothing_spills_and_shared_memory_fits(kernels: list[dict[str, Any]]) -> None:
    assert {row["spilled_bytes"] for row in kernels} == {0}
    assert all(0 < row["registers"] <= MOST_REGISTERS for row in kernels)
    assert max(row["shared_bytes"] for row in kernels) <= SMALLEST_SHARED_MEMORY


def test_offsets_beyond_32_bits(kernels: list[dict[str, Any]]) -> None:
    """Row numbers are multiplied by the width, and tokens by K, in 64 bits."""
    assert {product for row in kernels for product in row["narrow_products"]} == set()
