"""The routed sample: whole sequences, chosen by seed and place alone, everything active in them."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.indexing.pairs import Pairs
from trainer.indexing.sample import RoutedSample
from trainer.packing import pack_routed, unpack_routed

LENGTH = 4


def batch(first: int, count: int, generator: np.random.Generator) -> Pairs:
    """Two active experts on every token, random coefficients."""
    sequence, position = np.divmod(np.repeat(np.arange(count * LENGTH), 2), LENGTH)
    tokens = len(sequence)
    return Pairs(
        expert=np.tile(np.array([3, 5], np.int32), tokens // 2),
        sequence=(sequence + first).astype(np.int32),
        position=position.astype(np.uint16),
        coefficient=generator.random(tokens).astype(np.float32),
        rank=np.zeros(tokens, np.uint16),
    )


def sampled(batches: list[int], room: int, seed: int = 0) -> RoutedSample:
    sample = RoutedSample(seed, LENGTH, tokens=room * LENGTH)
    generator, first = np.random.default_rng(0), 0
    for count in batches:
        sample.add(batch(first, count, generator), np.zeros((count, LENGTH), np.int64), np.arange(first, first + count))
        first += count
    return sample


def test_which_sequences_does_not_depend_on_batches() -> None:
    one, other = sampled([30], room=7), sampled([4, 1, 20, 5], room=7)
    assert one.sequences == other.sequences
    assert len(one.sequences) == 7
    assert sampled([30], room=7, seed=1).sequences != one.sequences


def test_a_short_text_is_kept_whole() -> None:
    assert sampled([3, 2], room=50).sequences == [0, 1, 2, 3, 4]


def test_the_strongest_come_first() -> None:
    pairs = batch(0, 1, np.random.default_rng(3))
    sample = RoutedSample(0, LENGTH)
    sample.add(pairs, np.zeros((1, LENGTH), np.int64), np.arange(1))
    counts, experts = sample.routed(0)
    assert counts.tolist() == [2] * LENGTH
    for token in range(LENGTH):
        here = pairs.position == token
        strongest = pairs.expert[here][pairs.coefficient[here].argmax()]
        assert experts[2 * token] == strongest


@pytest.mark.parametrize("num_experts", [1 << 16, (1 << 16) + 1])
def test_packing_loses_nothing(num_experts: int) -> None:
    counts, experts = np.array([0, 2, 1]), np.array([0, num_experts - 1, 7])
    found = unpack_routed(*pack_routed(counts, experts, num_experts), num_experts)
    assert [part.tolist() for part in found] == [counts.tolist(), experts.tolist()]


def test_two_processes_keep_what_one_would() -> None:
    whole, first, second = (RoutedSample(0, LENGTH, tokens=7 * LENGTH) for _ in range(3))
    generator = np.random.default_rng(0)
    for number in range(8):
        pairs, numbers = batch(4 * number, 4, generator), np.arange(4 * number, 4 * number + 4)
        token_ids = np.arange(16).reshape(4, LENGTH) + number
        for sample in (whole, (first, second)[number % 2]):
            sample.add(pairs, token_ids, numbers)
    first.join(*second.flat())
    for one, other in zip(first.flat(), whole.flat(), strict=True):
        assert one.tolist() == other.tolist()
