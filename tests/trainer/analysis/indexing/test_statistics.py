"""Percentiles of every expert against numpy, in one pass, in parts, and when the text changes."""

from collections import Counter
from contextlib import closing
from math import log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.analysis.indexing import statistics as module
from mxd.trainer.analysis.indexing.statistics import ActivePairs, ExpertStatistics, Floats, TokenCounts

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
    statistics = counted(parts)
    assert statistics.percentiles(0.99).tolist() == expected(parts)
    assert len(statistics.tails.value) < 0.06 * 200 * 400
    merged = counted(parts[:50])
    merged.merge(counted(parts[50:]))
    assert merged.percentiles(0.99).tolist() == expected(parts)


def test_a_text_that_becomes_weaker_gets_the_edge_of_a_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING", 1)
    monkeypatch.setattr(module, "MIN_TAIL", 8)
    parts = batches(np.where(np.arange(300) < 10, 1.0, 1e-3), seed=2)
    for found, exact in zip(counted(parts).percentiles(0.99), expected(parts), strict=True):
        assert exact <= found
    statistics = counted(parts)
    width = statistics.highs / 64
    assert (statistics.percentiles(0.99) - expected(parts) <= width).all()


FEW, VOCABULARY = 7, 11
Tokens = list[tuple[int, int]]
"""Pairs of an expert and a token."""


def token_counts(batches: list[Tokens], folder: Path, buffer_size: int) -> TokenCounts:
    counts = TokenCounts(FEW, VOCABULARY, folder, buffer_size)
    for batch in batches:
        expert = np.array([expert for expert, _ in batch], np.int32)
        empty = ActivePairs.empty()
        counts.add(empty._replace(expert=expert), np.array([token for _, token in batch], np.int64))
    return counts


def check(counts: TokenCounts, batches: list[Tokens]) -> None:
    expected = [Counter(token for batch in batches for e, token in batch if e == expert) for expert in range(FEW)]
    expert = 0
    for summary in counts.summaries(top=3):
        assert summary.first == expert
        for top, entropy in zip(summary.top_tokens, summary.entropy.tolist(), strict=True):
            total = sum(expected[expert].values())
            most = sorted(map(list, expected[expert].items()), key=lambda pair: (-pair[1], pair[0]))[:3]
            assert top == most
            assert entropy == pytest.approx(sum(-n / total * log2(n / total) for n in expected[expert].values()))
            expert += 1
    assert expert == FEW


pairs = st.tuples(st.integers(0, FEW - 1), st.integers(0, VOCABULARY - 1))


@given(
    batches=st.lists(st.lists(pairs, max_size=30), max_size=8),
    parts=st.lists(st.lists(pairs, max_size=30), max_size=3),
    buffer_size=st.sampled_from([1, 3, 8, 1000]),
)
def test_counts_equal_plain_counting_and_add_up(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Tokens], parts: list[Tokens], buffer_size: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    with closing(token_counts(batches, folder, buffer_size)) as counts:
        for part in parts:
            with closing(token_counts([part], folder, buffer_size=1000)) as other:
                for _, _, words in other.chunks():
                    counts.add_run(words)
        check(counts, batches + parts)


def test_counts_above_16_bits_and_small_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COUNT", 4)
    monkeypatch.setattr(module, "COUNT_BITS", 2)
    monkeypatch.setattr(module, "WORDS_PER_CHUNK", 5)
    monkeypatch.setattr(module, "MAX_RUNS", 2)  # runs on disk are merged
    rng = np.random.default_rng(0)
    batches = [[(int(e) % FEW, int(t) % 3) for e, t in rng.integers(0, 100, (50, 2))] for _ in range(6)]
    with closing(token_counts(batches, tmp_path, buffer_size=40)) as counts:
        check(counts, batches)
