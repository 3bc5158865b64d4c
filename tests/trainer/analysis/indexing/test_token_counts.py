"""``TokenCounts`` against plain counting, with any share of the counts on disk."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from math import log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.analysis.indexing import statistics as module
from mxd.trainer.analysis.indexing.statistics import ActivePairs, TokenCounts

EXPERTS, VOCABULARY = 7, 11


def counted(batches: list[list[tuple[int, int]]], folder: Path, buffer_size: int) -> TokenCounts:
    counts = TokenCounts(EXPERTS, VOCABULARY, folder, buffer_size)
    for batch in batches:
        expert = np.array([expert for expert, _ in batch], np.int32)
        empty = ActivePairs.empty()
        counts.add(empty._replace(expert=expert), np.array([token for _, token in batch], np.int64))
    return counts


def check(counts: TokenCounts, batches: list[list[tuple[int, int]]]) -> None:
    expected = [Counter(token for batch in batches for e, token in batch if e == expert) for expert in range(EXPERTS)]
    expert = 0
    for summary in counts.summaries(top=3):
        assert summary.first == expert
        for top, entropy in zip(summary.top_tokens, summary.entropy.tolist(), strict=True):
            total = sum(expected[expert].values())
            most = sorted(map(list, expected[expert].items()), key=lambda pair: (-pair[1], pair[0]))[:3]
            assert top == most
            assert entropy == pytest.approx(sum(-n / total * log2(n / total) for n in expected[expert].values()))
            expert += 1
    assert expert == EXPERTS


pairs = st.tuples(st.integers(0, EXPERTS - 1), st.integers(0, VOCABULARY - 1))


@given(batches=st.lists(st.lists(pairs, max_size=30), max_size=8), buffer_size=st.sampled_from([1, 3, 8, 1000]))
def test_counts_equal_plain_counting(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, int]]], buffer_size: int
) -> None:
    with closing(counted(batches, tmp_path_factory.getbasetemp(), buffer_size)) as counts:
        check(counts, batches)


@given(parts=st.lists(st.lists(pairs, max_size=30), min_size=2, max_size=4))
def test_parts_add_up(tmp_path_factory: pytest.TempPathFactory, parts: list[list[tuple[int, int]]]) -> None:
    folder = tmp_path_factory.getbasetemp()
    with closing(counted(parts[:1], folder, buffer_size=4)) as whole:
        for part in parts[1:]:
            with closing(counted([part], folder, buffer_size=1000)) as other:
                for _, _, words in other.chunks():
                    whole.add_run(words)
        check(whole, parts)


def test_counts_above_16_bits_and_small_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COUNT", 4)
    monkeypatch.setattr(module, "COUNT_BITS", 2)
    monkeypatch.setattr(module, "WORDS_PER_CHUNK", 5)
    rng = np.random.default_rng(0)
    batches = [[(int(e) % EXPERTS, int(t) % 3) for e, t in rng.integers(0, 100, (50, 2))] for _ in range(6)]
    with closing(counted(batches, tmp_path, buffer_size=40)) as counts:
        check(counts, batches)


def test_no_file_is_left_in_the_folder(tmp_path: Path) -> None:
    with closing(counted([[(1, 2), (1, 2), (3, 4)]], tmp_path, buffer_size=1)) as counts:
        assert list(tmp_path.iterdir()) == []
        check(counts, [[(1, 2), (1, 2), (3, 4)]])
