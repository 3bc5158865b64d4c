"""Percentiles of every expert against numpy, in one pass, in parts, and when the text changes."""

from __future__ import annotations

import numpy as np
import pytest

from mxd.trainer.analysis.indexing import statistics as module
from mxd.trainer.analysis.indexing.statistics import ActivePairs, ExpertStatistics, Floats

EXPERTS = 5


def batches(scale: Floats, seed: int) -> list[ActivePairs]:
    """Pairs of each batch, sorted by expert; expert 4 is dead, and ``scale`` multiplies the activations of a batch."""
    generator = np.random.default_rng(seed)
    made = []
    for factor in scale:
        expert = np.sort(generator.choice(EXPERTS - 1, size=400, p=[0.7, 0.2, 0.09, 0.01])).astype(np.int32)
        activation = (factor * generator.lognormal(0, 1.5, size=400)).astype(np.float32)
        zeros = np.zeros(400, np.int32)
        made.append(ActivePairs(expert, zeros, zeros.astype(np.uint16), activation, zeros.astype(np.uint16)))
    return made


def counted(parts: list[ActivePairs]) -> ExpertStatistics:
    statistics = ExpertStatistics(EXPERTS)
    for pairs in parts:
        statistics.add(pairs)
    return statistics


def expected(parts: list[ActivePairs]) -> list[float]:
    pairs = ActivePairs.concatenate(parts)
    values = [pairs.activation[pairs.expert == expert] for expert in range(EXPERTS)]
    return [float(np.percentile(it, 99, method="inverted_cdf")) if len(it) else 0.0 for it in values]


@pytest.mark.parametrize("pending", [1, 1000, 1 << 20])
def test_percentiles_are_exact(pending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING", pending)
    monkeypatch.setattr(module, "MIN_TAIL", 8)
    parts = batches(np.ones(200), seed=1)
    assert counted(parts).percentiles(0.99).tolist() == expected(parts)
    merged = counted(parts[:50])
    merged.merge(counted(parts[50:]))
    assert merged.percentiles(0.99).tolist() == expected(parts)
    assert len(counted(parts).tails.arrays(merged.active_tokens)[1]) < 0.06 * 200 * 400


def test_a_text_that_becomes_weaker_gets_the_edge_of_a_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING", 1)
    monkeypatch.setattr(module, "MIN_TAIL", 8)
    parts = batches(np.where(np.arange(300) < 10, 1.0, 1e-3), seed=2)
    for found, exact in zip(counted(parts).percentiles(0.99), expected(parts), strict=True):
        assert exact <= found
    statistics = counted(parts)
    width = statistics.highs / 64
    assert (statistics.percentiles(0.99) - expected(parts) <= width).all()
