"""Selection of examples: it depends neither on batches, nor on parts of the text, nor on when pruning happens."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.analysis.indexing.examples import RoutedSample, SelectedExamples, TopExamples, sequence_key
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
) -> tuple[TopExamples, ExpertStatistics, RoutedSample]:
    statistics, sample = ExpertStatistics(EXPERTS), RoutedSample(seed=1, context_length=LENGTH, tokens=7 * LENGTH)
    examples = TopExamples(EXPERTS, top=3, examples_per_bin=examples_per_bin, seed=1, prune_at=prune_at)
    for sequence_ids_S in batches:
        pairs = select_pairs(routing, sequence_ids_S)
        examples.add(pairs, statistics, statistics.add(pairs))
        if examples.needs_pruning:
            examples.prune(statistics)
        sample.add(pairs, sequence_ids_S[:, None].repeat(LENGTH, axis=1), sequence_ids_S)
    return examples, statistics, sample


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
    whole, statistics, sample = collect(routing, [np.arange(sequences)], examples_per_bin, prune_at=1 << 20)
    expected = whole.prune(statistics), whole.pairs
    several = [
        collect(routing, [np.array([number]) for number in range(part, sequences, parts)], examples_per_bin, prune_at=4)
        for part in range(parts)
    ]
    (examples, together, own), *others = several
    for _, other, routed in others:
        together.merge(other)
        own.merge(routed)
    for other_examples, other, _ in others:
        other_examples.prune(other)
    selected = examples.merge([other_examples.pairs for other_examples, *_ in others], together)
    assert same(expected, (selected, examples.pairs))
    for name in ("active_tokens", "largest", "histogram_NB", "exponents", "highs", "means"):
        assert np.array_equal(getattr(statistics, name), getattr(together, name)), name
    check_sample(sample, routing, min(7, sequences))
    assert own.sequences == sample.sequences
    for sequence in sample.sequences:
        assert own.token_ids[sequence].tolist() == [sequence] * LENGTH
        assert all(map(np.array_equal, own.active_experts(sequence), sample.active_experts(sequence)))


def check_sample(sample: RoutedSample, routing: Routing, size: int) -> None:
    """Experts of each token are those of the routing, strongest first."""
    assert len(sample.sequences) == size
    for sequence in sample.sequences:
        counts, experts = sample.active_experts(sequence)
        tokens = slice(sequence * LENGTH, (sequence + 1) * LENGTH)
        activations_LN = torch.zeros(LENGTH, EXPERTS)
        activations_LN.scatter_(1, routing.indices_TK[tokens], routing.activations_TK[tokens])
        for active_N, listed in zip(activations_LN, np.split(experts, counts.cumsum()[:-1]), strict=True):
            assert active_N[listed].tolist() == sorted(active_N[active_N > 0].tolist(), reverse=True)


def test_the_seed_chooses_the_sequences() -> None:
    assert sequence_key(0, 5) != sequence_key(1, 5)


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


@pytest.mark.parametrize("num_experts", [1 << 16, (1 << 16) + 1])
def test_packing_is_lossless(num_experts: int) -> None:
    counts, experts = np.array([0, 2, 1]), np.array([0, num_experts - 1, 7])
    unpacked = unpack_routed(*pack_routed(counts, experts, num_experts), num_experts)
    assert [part.tolist() for part in unpacked] == [counts.tolist(), experts.tolist()]
