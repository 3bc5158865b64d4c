"""Device benchmark and free memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from mxd.trainer.training.planning import device_benchmark as rates
from mxd.trainer.training.planning.device_benchmark import Product, free_bytes, measure, resident_bytes

CPU = torch.device("cpu")


def test_products_and_bandwidth_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "SECONDS_EACH", 0.0)
    monkeypatch.setattr(rates, "STREAM_SIZE", 1 << 10)
    products = [Product(32, 16, 20, torch.float32), Product(32, 16, 10**9, torch.bfloat16)]
    result = measure(products, CPU)
    assert result.products.keys() == set(products)
    assert min(*result.products.values(), result.bytes_per_second) > 0


def test_the_rate_is_flops_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(float(second) for second in range(1000))  # each call advances the clock by a second
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    product = Product(8, 4, 6, torch.float32)
    assert measure([product], CPU).products[product] == product.flops == 2 * 8 * 4 * 6


def test_free_and_resident_memory() -> None:
    resident, free = resident_bytes(), free_bytes(CPU)
    assert resident > 10**7
    assert free > 10**7


def test_a_cgroup_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limits = [tmp_path / name for name in ("most", "used")]
    for path, size in zip(limits, (1000, 400), strict=True):
        path.write_text(f"{size}\n")
    monkeypatch.setattr(rates, "_CGROUP_FILES", tuple(limits))
    assert free_bytes(CPU) == 600
    limits[0].write_text("max\n")
    assert free_bytes(CPU) != 600
