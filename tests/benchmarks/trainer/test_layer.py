"""The layer benchmark: the sparse and the dense form agree, and the results describe the requested sizes."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.trainer.layer import StepSizes, bench_layer
from benchmarks.trainer.timing import Rounds, in_turn, median_ratio
from mxd.trainer.utils.callbacks import Callbacks


def test_both_forms_agree_at_every_size() -> None:
    sizes = [StepSizes(501, 4, 128), StepSizes(501, 8, 64)]
    found = bench_layer(width=16, hidden_width=32, sizes=sizes, rounds=2, device="cpu")
    assert [StepSizes(it.num_experts, it.k, it.tokens) for it in found.points] == sizes
    for point in found.points:
        assert point.gradient_error < 1e-4
        assert point.cpu_speedup > 0
        assert point.speedup > 0


def test_the_dense_form_needs_more_memory() -> None:
    sizes = [StepSizes(20_011, 4, 1024)]
    (point,) = bench_layer(width=64, hidden_width=64, sizes=sizes, rounds=1, device="cpu").points
    assert point.sparse_extra_bytes < 0.6 * point.dense_extra_bytes


PEAK = """
import torch
from benchmarks.trainer.memory import extra_peak_bytes
print(extra_peak_bytes(lambda: torch.ones(16 << 20).max(), "cpu"))
"""
"""In a process of its own: another test may have this one keep what is freed, which is then there already."""


def test_a_past_memory_peak_is_measured() -> None:
    found = float(subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True).stdout)
    assert 0.9 * (64 << 20) < found < 2 * (64 << 20)


def test_variants_alternate_and_the_warm_up_is_excluded() -> None:
    calls: list[str] = []
    seconds = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3)
    assert calls == ["a", "b"] * 4
    assert [len(values) for values in seconds.values()] == [3, 3]


def test_rounds_report_their_progress() -> None:
    told: list[tuple[int, int, str]] = []
    timing = Rounds(2, 1, Callbacks(lambda *words: told.append(words)))
    for size in ("small", "large"):
        timing.take({"a": lambda: None}, size)
    assert told == [(1, 4, "small"), (2, 4, "small"), (3, 4, "large"), (4, 4, "large")]


def test_median_ratio_is_paired() -> None:
    assert median_ratio([2.0, 40.0, 6.0], [1.0, 10.0, 2.0]) == 3.0
