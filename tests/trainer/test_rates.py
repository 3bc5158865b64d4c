"""Measuring a device is quick, and gives figures that can be used."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from trainer import rates
from trainer.rates import Product, free_bytes, measure, resident_bytes

CPU = torch.device("cpu")


def test_every_product_and_the_memory_get_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "SECONDS_EACH", 0.0)
    monkeypatch.setattr(rates, "STREAMED", 1 << 10)
    products = [Product(32, 16, 20, torch.float32), Product(32, 16, 10**9, torch.bfloat16)]
    found = measure(products, CPU)
    assert found.products.keys() == set(products)
    assert min(*found.products.values(), found.bytes_per_second) > 0


def test_the_rate_is_that_of_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(float(second) for second in range(1000))  # every look at the clock takes a second
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    product = Product(8, 4, 6, torch.float32)
    assert measure([product], CPU).products[product] == product.flops == 2 * 8 * 4 * 6


def test_memory_is_known_here() -> None:
    held, free = resident_bytes(), free_bytes(CPU)
    assert held > 10**7
    assert free > 10**7


def test_a_containers_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limits = [tmp_path / name for name in ("most", "used")]
    for path, size in zip(limits, (1000, 400), strict=True):
        path.write_text(f"{size}\n")
    monkeypatch.setattr(rates, "_LIMITS", tuple(limits))
    assert free_bytes(CPU) == 600
    limits[0].write_text("max\n")
    assert free_bytes(CPU) != 600
