"""Statistics and examples of experts: exact, whatever the batches, the parts of the text and the pruning."""

from collections import Counter
from contextlib import closing
from math import log2
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.analysis.indexing import statistics as module
from mxd.trainer.analysis.indexing.examples import RoutedSample, SelectedExamples, TopExamples, sequence_key
from mxd.trainer.analysis.indexing.statistics import (
    ActivePairs,
    ExpertStatistics,
    Floats,
    Ints,
    TokenCounts,
    active_pairs,
)
from mxd.trainer.layers.base import Routing
from mxd.trainer.storage.database.column_types import pack_routed, unpack_routed

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


SELECTED, LENGTH = 6, 5


def random_routing(seed: int, sequences: int) -> Routing:
    """Few distinct activations, so that many are equal, over several powers of two; some are 0."""
    rng = np.random.default_rng(seed)
    tokens = sequences * LENGTH
    activations_TK = rng.choice([0.0, 0.01, 0.3, 0.5, 0.75, 1.0, 6.0], (tokens, 3)).astype(np.float32)
    indices_TK = np.stack([rng.permutation(SELECTED)[:3] for _ in range(tokens)])
    return Routing(torch.from_numpy(activations_TK), torch.from_numpy(indices_TK))


def select_pairs(routing: Routing, sequence_ids_S: Ints) -> ActivePairs:
    rows = (sequence_ids_S[:, None] * LENGTH + np.arange(LENGTH)).reshape(-1)
    chosen = Routing(routing.activations_TK[rows], routing.indices_TK[rows])
    return active_pairs(chosen, LENGTH, sequence_ids_S)[0]


def collect(
    routing: Routing, batches: list[Ints], examples_per_bin: int, prune_at: int
) -> tuple[TopExamples, ExpertStatistics, RoutedSample]:
    statistics, sample = ExpertStatistics(SELECTED), RoutedSample(seed=1, context_length=LENGTH, tokens=7 * LENGTH)
    examples = TopExamples(SELECTED, top=3, examples_per_bin=examples_per_bin, seed=1, prune_at=prune_at)
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
        activations_LN = torch.zeros(LENGTH, SELECTED)
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
