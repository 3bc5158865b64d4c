"""The routed sample: whole sequences, chosen by seed and index only, with their complete routing."""

from __future__ import annotations

import numpy as np
import pytest

from mxd.trainer.analysis.indexing.examples import RoutedSample
from mxd.trainer.analysis.indexing.statistics import ActivePairs
from mxd.trainer.storage.database.column_types import pack_routed, unpack_routed

LENGTH = 4


def batch(first: int, count: int, generator: np.random.Generator) -> ActivePairs:
    """Two active experts on every token, random activations."""
    sequence, position = np.divmod(np.repeat(np.arange(count * LENGTH), 2), LENGTH)
    tokens = len(sequence)
    return ActivePairs(
        expert=np.tile(np.array([3, 5], np.int32), tokens // 2),
        sequence=(sequence + first).astype(np.int32),
        position=position.astype(np.uint16),
        activation=generator.random(tokens).astype(np.float32),
        rank=np.zeros(tokens, np.uint16),
    )


def sampled(batches: list[int], capacity: int, seed: int = 0) -> RoutedSample:
    sample = RoutedSample(seed, LENGTH, tokens=capacity * LENGTH)
    generator, first = np.random.default_rng(0), 0
    for count in batches:
        sample.add(batch(first, count, generator), np.zeros((count, LENGTH), np.int64), np.arange(first, first + count))
        first += count
    return sample


def test_the_choice_does_not_depend_on_batches() -> None:
    one, other = sampled([30], capacity=7), sampled([4, 1, 20, 5], capacity=7)
    assert one.sequences == other.sequences
    assert len(one.sequences) == 7
    assert sampled([30], capacity=7, seed=1).sequences != one.sequences


def test_a_short_text_is_sampled_completely() -> None:
    assert sampled([3, 2], capacity=50).sequences == [0, 1, 2, 3, 4]


def test_experts_are_sorted_by_activation() -> None:
    pairs = batch(0, 1, np.random.default_rng(3))
    sample = RoutedSample(0, LENGTH)
    sample.add(pairs, np.zeros((1, LENGTH), np.int64), np.arange(1))
    counts, experts = sample.active_experts(0)
    assert counts.tolist() == [2] * LENGTH
    for token in range(LENGTH):
        here = pairs.position == token
        strongest = pairs.expert[here][pairs.activation[here].argmax()]
        assert experts[2 * token] == strongest


@pytest.mark.parametrize("num_experts", [1 << 16, (1 << 16) + 1])
def test_packing_is_lossless(num_experts: int) -> None:
    counts, experts = np.array([0, 2, 1]), np.array([0, num_experts - 1, 7])
    unpacked = unpack_routed(*pack_routed(counts, experts, num_experts), num_experts)
    assert [part.tolist() for part in unpacked] == [counts.tolist(), experts.tolist()]


def test_two_processes_merge_to_the_sample_of_one() -> None:
    whole, first, second = (RoutedSample(0, LENGTH, tokens=7 * LENGTH) for _ in range(3))
    generator = np.random.default_rng(0)
    for number in range(8):
        pairs, numbers = batch(4 * number, 4, generator), np.arange(4 * number, 4 * number + 4)
        token_ids = np.arange(16).reshape(4, LENGTH) + number
        for sample in (whole, (first, second)[number % 2]):
            sample.add(pairs, token_ids, numbers)
    first.merge(second)
    assert first.sequences == whole.sequences
    for sequence in whole.sequences:
        np.testing.assert_array_equal(first.token_ids[sequence], whole.token_ids[sequence])
        for one, other in zip(first.active_experts(sequence), whole.active_experts(sequence), strict=True):
            np.testing.assert_array_equal(one, other)
