"""What is kept does not depend on how the text was cut into batches and parts, nor on when it was settled who stays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.indexing.contexts import Contexts, Kept
from trainer.indexing.pairs import Ints, Pairs, active_pairs
from trainer.indexing.statistics import Statistics
from trainer.layers.sparse import Routing

EXPERTS, LENGTH = 6, 5


def routed(seed: int, sequences: int) -> Routing:
    """Few distinct coefficients, so that many are equal, over several powers of two; some are 0."""
    rng = np.random.default_rng(seed)
    tokens = sequences * LENGTH
    coefficients_TK = rng.choice([0.0, 0.01, 0.3, 0.5, 0.75, 1.0, 6.0], (tokens, 3)).astype(np.float32)
    indices_TK = np.stack([rng.permutation(EXPERTS)[:3] for _ in range(tokens)])
    return Routing(torch.from_numpy(coefficients_TK), torch.from_numpy(indices_TK))


def part_of(routing: Routing, numbers_S: Ints) -> Pairs:
    rows = (numbers_S[:, None] * LENGTH + np.arange(LENGTH)).reshape(-1)
    chosen = Routing(routing.coefficients_TK[rows], routing.indices_TK[rows])
    return active_pairs(chosen, LENGTH, numbers_S)[0]


def gathered(routing: Routing, batches: list[Ints], per_interval: int, settle_at: int) -> tuple[Contexts, Statistics]:
    statistics = Statistics(EXPERTS)
    contexts = Contexts(EXPERTS, top=3, per_interval=per_interval, seed=1, settle_at=settle_at)
    for numbers_S in batches:
        pairs = part_of(routing, numbers_S)
        contexts.add(pairs, statistics, statistics.add(pairs))
        if contexts.wants_settling:
            contexts.settle(statistics)
    return contexts, statistics


def same(left: tuple[Kept, Pairs], right: tuple[Kept, Pairs]) -> bool:
    """Whether the same contexts are kept, each with the same surroundings."""
    (kept, pairs), (others, other_pairs) = left, right
    names = ("expert", "interval", "rank", "sequence", "position", "coefficient")
    columns = all(np.array_equal(getattr(kept, name), getattr(others, name)) for name in names)
    return columns and all(
        pairs.position[a:b].tolist() == other_pairs.position[c:d].tolist()
        for a, b, c, d in zip(kept.start, kept.end, others.start, others.end, strict=True)
    )


@given(seed=st.integers(0, 1000), sequences=st.integers(1, 40), per_interval=st.integers(0, 2), parts=st.integers(1, 3))
def test_batches_parts_and_settling_change_nothing(seed: int, sequences: int, per_interval: int, parts: int) -> None:
    routing = routed(seed, sequences)
    whole, statistics = gathered(routing, [np.arange(sequences)], per_interval, settle_at=1 << 20)
    wanted = whole.settle(statistics), whole.pairs
    several = [
        gathered(routing, [np.array([number]) for number in range(part, sequences, parts)], per_interval, settle_at=4)
        for part in range(parts)
    ]
    (contexts, together), *others = several
    for _, other in others:
        together.merge(other)
    for other_contexts, other in others:
        other_contexts.settle(other)
    kept = contexts.merge([other_contexts.pairs for other_contexts, _ in others], together)
    assert same(wanted, (kept, contexts.pairs))
    for name in ("active_tokens", "largest", "histogram_NB", "exponents", "highs", "means"):
        assert np.array_equal(getattr(statistics, name), getattr(together, name)), name


def test_pairs_are_in_order_whatever_k_is() -> None:
    pairs, token_P = active_pairs(routed(0, 9), LENGTH, np.arange(9) * 2)
    rows = list(zip(*(field.tolist() for field in pairs[:3]), strict=True))
    assert rows == sorted(rows)
    assert (pairs.coefficient > 0).all()
    assert set(pairs.sequence.tolist()) <= set(range(0, 18, 2))
    assert token_P.tolist() == [s // 2 * LENGTH + p for _, s, p in rows]


def test_ranks_go_by_coefficient_whatever_the_order_of_the_gate() -> None:
    """A gate without a top-k has its experts by id."""
    routing = Routing(torch.tensor([[0.0, 2.0, 0.5, 3.0], [1.0, 0.0, 4.0, 0.0]]), torch.arange(4).expand(2, 4))
    pairs, token_P = active_pairs(routing, 1, np.arange(2))
    ranks = {(int(t), int(e)): int(r) for t, e, r in zip(token_P, pairs.expert, pairs.rank, strict=True)}
    assert ranks == {(0, 1): 1, (0, 2): 2, (0, 3): 0, (1, 0): 1, (1, 2): 0}


def test_random_contexts_are_a_fair_sample() -> None:
    """Each of 400 equal pairs is drawn about as often as another over many seeds."""
    routing = Routing(torch.ones(400, 1), torch.zeros(400, 1, dtype=torch.int64))
    pairs, _ = active_pairs(routing, LENGTH, np.arange(80))
    drawn = np.zeros(400)
    for seed in range(500):
        statistics = Statistics(1)
        contexts = Contexts(1, top=1, per_interval=20, seed=seed)
        contexts.add(pairs, statistics, statistics.add(pairs))
        kept = contexts.settle(statistics)
        random = kept.interval > 0
        drawn[kept.sequence[random] * LENGTH + kept.position[random]] += 1
    # 25 expected of each; a standard deviation is 5.
    assert drawn.sum() == 500 * 20
    assert drawn.std() == pytest.approx(5, rel=0.2)
    assert drawn.max() < 25 + 5 * 5
