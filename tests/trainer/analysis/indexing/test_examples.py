"""Selection of examples: it depends neither on batches, nor on parts of the text, nor on when pruning happens."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.analysis.indexing.examples import RoutedSample, SelectedExamples, TopExamples
from mxd.trainer.analysis.indexing.statistics import ActivePairs, ExpertStatistics, Ints, active_pairs
from mxd.trainer.layers.base import Routing
from mxd.trainer.storage.database.column_types import pack_routed, unpack_routed

EXPERTS, LENGTH = 6, 5


def random_routing(seed: int, sequences: int) -> Routing:
    """Few distinct activations, so that many are equal, over several powers of two; some are 0."""
    rng = np.random.default_rng(seed)
    tokens = sequences * LENGTH
    activations_TK = rng.choice([0.0, 0.01, 0.3, 0.5, 0.75, 1.0, 6.0], (tokens, 3)).astype(np.float32)
    indices_TK = np.stack([rng.permutation(EXPERTS)[:3] for _ in range(tokens)])
    return Routing(torch.from_numpy(activations_TK), torch.from_numpy(indices_TK))


def select_pairs(routing: Routing, sequence_ids_S: Ints) -> ActivePairs:
    rows = (sequence_ids_S[:, None] * LENGTH + np.arange(LENGTH)).reshape(-1)
    chosen = Routing(routing.activations_TK[rows], routing.indices_TK[rows])
    return active_pairs(chosen, LENGTH, sequence_ids_S)[0]


def collect(
    routing: Routing, batches: list[Ints], examples_per_bin: int, prune_at: int
) -> tuple[TopExamples, ExpertStatistics]:
    statistics = ExpertStatistics(EXPERTS)
    examples = TopExamples(EXPERTS, top=3, examples_per_bin=examples_per_bin, seed=1, prune_at=prune_at)
    for sequence_ids_S in batches:
        pairs = select_pairs(routing, sequence_ids_S)
        examples.add(pairs, statistics, statistics.add(pairs))
        if examples.needs_pruning:
            examples.prune(statistics)
    return examples, statistics


def same(left: tuple[SelectedExamples, ActivePairs], right: tuple[SelectedExamples, ActivePairs]) -> bool:
    """Compare the selected examples and their active positions."""
    (selected, pairs), (others, other_pairs) = left, right
    names = ("expert", "bin", "rank", "sequence", "position", "activation")
    columns = all(np.array_equal(getattr(selected, name), getattr(others, name)) for name in names)
    return columns and all(
        pairs.position[a:b].tolist() == other_pairs.position[c:d].tolist()
        for a, b, c, d in zip(selected.start, selected.end, others.start, others.end, strict=True)
    )


@given(
    seed=st.integers(0, 1000), sequences=st.integers(1, 40), examples_per_bin=st.integers(0, 2), parts=st.integers(1, 3)
)
def test_examples_do_not_depend_on_batches_parts_and_pruning(
    seed: int, sequences: int, examples_per_bin: int, parts: int
) -> None:
    routing = random_routing(seed, sequences)
    whole, statistics = collect(routing, [np.arange(sequences)], examples_per_bin, prune_at=1 << 20)
    expected = whole.prune(statistics), whole.pairs
    several = [
        collect(routing, [np.array([number]) for number in range(part, sequences, parts)], examples_per_bin, prune_at=4)
        for part in range(parts)
    ]
    (examples, together), *others = several
    for _, other in others:
        together.merge(other)
    for other_examples, other in others:
        other_examples.prune(other)
    selected = examples.merge([other_examples.pairs for other_examples, _ in others], together)
    assert same(expected, (selected, examples.pairs))
    for name in ("active_tokens", "largest", "histogram_NB", "exponents", "highs", "means"):
        assert np.array_equal(getattr(statistics, name), getattr(together, name)), name


def test_ranks_follow_the_activations_not_the_gate() -> None:
    """A gate without a top-k has its experts by id."""
    routing = Routing(torch.tensor([[0.0, 2.0, 0.5, 3.0], [1.0, 0.0, 4.0, 0.0]]), torch.arange(4).expand(2, 4))
    pairs, token_P = active_pairs(routing, 1, np.arange(2))
    ranks = {(int(t), int(e)): int(r) for t, e, r in zip(token_P, pairs.expert, pairs.rank, strict=True)}
    assert ranks == {(0, 1): 1, (0, 2): 2, (0, 3): 0, (1, 0): 1, (1, 2): 0}


def test_random_examples_are_a_fair_sample() -> None:
    """Each of 400 equal pairs is drawn about as often as another over many seeds."""
    routing = Routing(torch.ones(400, 1), torch.zeros(400, 1, dtype=torch.int64))
    pairs, _ = active_pairs(routing, LENGTH, np.arange(80))
    drawn = np.zeros(400)
    for seed in range(500):
        statistics = ExpertStatistics(1)
        examples = TopExamples(1, top=1, examples_per_bin=20, seed=seed)
        examples.add(pairs, statistics, statistics.add(pairs))
        selected = examples.prune(statistics)
        random = selected.bin > 0
        drawn[selected.sequence[random] * LENGTH + selected.position[random]] += 1
    # 25 expected of each; a standard deviation is 5.
    assert drawn.sum() == 500 * 20
    assert drawn.std() == pytest.approx(5, rel=0.2)
    assert drawn.max() < 25 + 5 * 5


WINDOW = 4


def batch(first: int, count: int, generator: np.random.Generator) -> ActivePairs:
    """Two active experts on every token, random activations."""
    sequence, position = np.divmod(np.repeat(np.arange(count * WINDOW), 2), WINDOW)
    tokens = len(sequence)
    return ActivePairs(
        expert=np.tile(np.array([3, 5], np.int32), tokens // 2),
        sequence=(sequence + first).astype(np.int32),
        position=position.astype(np.uint16),
        activation=generator.random(tokens).astype(np.float32),
        rank=np.zeros(tokens, np.uint16),
    )


def sampled(batches: list[int], capacity: int, seed: int = 0) -> RoutedSample:
    sample = RoutedSample(seed, WINDOW, tokens=capacity * WINDOW)
    generator, first = np.random.default_rng(0), 0
    for count in batches:
        sample.add(batch(first, count, generator), np.zeros((count, WINDOW), np.int64), np.arange(first, first + count))
        first += count
    return sample


def test_the_choice_does_not_depend_on_batches() -> None:
    one, other = sampled([30], capacity=7), sampled([4, 1, 20, 5], capacity=7)
    assert one.sequences == other.sequences
    assert len(one.sequences) == 7
    assert sampled([30], capacity=7, seed=1).sequences != one.sequences


def test_experts_are_sorted_by_activation() -> None:
    pairs = batch(0, 1, np.random.default_rng(3))
    sample = RoutedSample(0, WINDOW)
    sample.add(pairs, np.zeros((1, WINDOW), np.int64), np.arange(1))
    counts, experts = sample.active_experts(0)
    assert counts.tolist() == [2] * WINDOW
    strongest = [pairs.expert[2 * token + pairs.activation[2 * token :][:2].argmax()] for token in range(WINDOW)]
    assert experts[::2].tolist() == strongest


@pytest.mark.parametrize("num_experts", [1 << 16, (1 << 16) + 1])
def test_packing_is_lossless(num_experts: int) -> None:
    counts, experts = np.array([0, 2, 1]), np.array([0, num_experts - 1, 7])
    unpacked = unpack_routed(*pack_routed(counts, experts, num_experts), num_experts)
    assert [part.tolist() for part in unpacked] == [counts.tolist(), experts.tolist()]


def test_two_processes_merge_to_the_sample_of_one() -> None:
    whole, first, second = (RoutedSample(0, WINDOW, tokens=7 * WINDOW) for _ in range(3))
    generator = np.random.default_rng(0)
    for number in range(8):
        pairs, numbers = batch(4 * number, 4, generator), np.arange(4 * number, 4 * number + 4)
        token_ids = np.arange(16).reshape(4, WINDOW) + number
        for sample in (whole, (first, second)[number % 2]):
            sample.add(pairs, token_ids, numbers)
    first.merge(second)
    assert first.sequences == whole.sequences
    for sequence in whole.sequences:
        np.testing.assert_array_equal(first.token_ids[sequence], whole.token_ids[sequence])
        for one, other in zip(first.active_experts(sequence), whole.active_experts(sequence), strict=True):
            np.testing.assert_array_equal(one, other)
