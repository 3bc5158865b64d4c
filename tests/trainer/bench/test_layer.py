"""The measurement itself: both forms agree, and the figures are of what was asked."""

from __future__ import annotations

import subprocess
import sys

from trainer.bench.layer import bench_layer
from trainer.bench.timing import in_turn, median_ratio


def test_both_forms_agree() -> None:
    result = bench_layer(width=16, hidden_width=32, num_experts=501, k=4, tokens=128, rounds=2, device="cpu")
    assert result.gradient_error < 1e-4
    assert result.cpu_speedup > 0
    assert (result.num_experts, result.k, result.tokens) == (501, 4, 128)
    assert result.speedup > 0


def test_the_dense_form_needs_more_memory() -> None:
    result = bench_layer(width=64, hidden_width=64, num_experts=20_011, k=4, tokens=1024, rounds=1, device="cpu")
    assert result.sparse_extra_bytes < 0.6 * result.dense_extra_bytes


PEAK = """
import torch
from trainer.bench.step_memory import extra_peak_bytes
print(extra_peak_bytes(lambda: torch.ones(16 << 20).max(), "cpu"))
"""
"""In a process of its own: another test may have this one keep what is freed, which is then there already."""


def test_the_peak_is_seen_though_it_is_gone_afterwards() -> None:
    found = float(subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True).stdout)
    assert 0.9 * (64 << 20) < found < 2 * (64 << 20)


def test_ways_take_turns_and_the_warm_up_is_not_counted() -> None:
    calls: list[str] = []
    seconds = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3)
    assert calls == ["a", "b"] * 4
    assert [len(values) for values in seconds.values()] == [3, 3]


def test_median_ratio_is_paired() -> None:
    assert median_ratio([2.0, 40.0, 6.0], [1.0, 10.0, 2.0]) == 3.0
