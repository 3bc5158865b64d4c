"""Comparison of the experts of two runs, matched by similarity.

Shapes: E active or chosen experts, D width of a direction (input width or number of distinct tokens), Q experts to
match, P pairs of an expert and a token, S sampled experts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from sqlalchemy import Row, select
from sqlalchemy.orm import Session
from torch import Tensor

from mxd.backend.database.engine import among
from mxd.backend.errors import NoIndexError
from mxd.backend.inference.run_loader import LoadedRun, RunLoader, Vocabulary
from mxd.backend.queries.automatic_labels import both_labels
from mxd.backend.schemas.comparison import ComparedExpert, MatchedBy, MatchedPair, RunComparison
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import RunRecord

EXPERTS_PER_BLOCK = 4096
Spread = Sequence[tuple[int, float]]
"""Token ids with their shares of an expert's active tokens."""
TINY = torch.finfo(torch.float32).tiny


class Directions:
    """Gate directions of some experts."""

    def __init__(self, rows: Callable[[Tensor], Tensor], experts_E: Tensor) -> None:
        """``rows`` returns the gate directions of experts by id."""
        self._rows, self._experts_E = rows, experts_E

    def __len__(self) -> int:
        return len(self._experts_E)

    def dense(self, rows_E: Tensor) -> Tensor:
        """Unit directions [E, D] of the experts ``rows_E``, in float32 on the CPU."""
        rows_ED = self._rows(self._experts_E[rows_E]).float().cpu()  # steering may have moved the layer to a GPU
        return torch.nn.functional.normalize(rows_ED, dim=1, eps=TINY)

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        """Cosine similarities [Q, end - start] of unit directions with the experts ``start`` to ``end``."""
        return directions_QD @ self.dense(torch.arange(start, end)).T

    def shuffled(self, seed: int) -> _ShuffledDirections:
        """Control experts, each value drawn from those of the same input."""
        return _ShuffledDirections(self, seed)


class _ShuffledDirections:
    """Directions whose values are each drawn from those of all experts for the same input. Keeps each input's
    distribution of values and removes all relations between inputs. Computed block by block, with the same result every
    time."""

    def __init__(self, real: Directions, seed: int) -> None:
        self._real, self._seed = real, seed

    def __len__(self) -> int:
        return len(self._real)

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        generator = torch.Generator().manual_seed(self._seed + start)
        # Draw from a sample of the experts, so that at most two blocks are in memory.
        sample_S = torch.randint(len(self), (min(EXPERTS_PER_BLOCK, len(self)),), generator=generator)
        real_SD = self._real.dense(sample_S)
        drawn_ED = torch.randint(len(sample_S), (end - start, real_SD.shape[1]), generator=generator)
        shuffled_ED = torch.nn.functional.normalize(real_SD.gather(0, drawn_ED), dim=1, eps=TINY)
        return directions_QD @ shuffled_ED.T


class TokenShares:
    """Token distributions of experts, as a sparse table [E, D] of unit rows."""

    def __init__(self, shares_ED: Any) -> None:
        """``shares_ED`` is a table in SciPy's coordinate format, with ascending experts."""
        self._shares_ED = shares_ED
        self._unit_ED = shares_ED.tocsr()
        values_P = torch.from_numpy(self._unit_ED.data)
        rows_P = torch.from_numpy(np.repeat(np.arange(len(self)), np.diff(self._unit_ED.indptr)))
        values_P /= torch.zeros(len(self)).index_add_(0, rows_P, values_P.square()).sqrt().clamp_min(TINY)[rows_P]

    def __len__(self) -> int:
        return int(self._unit_ED.shape[0])

    def dense(self, rows_E: Tensor) -> Tensor:
        """Unit directions of some experts, with one column per token id."""
        return torch.from_numpy(self._unit_ED[rows_E.numpy()].toarray())

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        block = self._unit_ED[start:end].tocoo()
        places, values = torch.from_numpy(np.stack(block.coords)), torch.from_numpy(block.data)
        block_ED = torch.sparse_coo_tensor(places, values, block.shape, check_invariants=True)
        products_EQ: Tensor = torch.sparse.mm(block_ED, directions_QD.T.contiguous())
        return products_EQ.T

    def shuffled(self, seed: int) -> TokenShares:
        """Control experts with as many tokens each, whose tokens and shares are permuted among all."""
        experts_P, columns_P = self._shares_ED.coords
        order = torch.randperm(len(experts_P), generator=torch.Generator().manual_seed(seed)).numpy()
        pairs = self._shares_ED.data[order], (experts_P, columns_P[order])
        return TokenShares(coo_array(pairs, shape=self._shares_ED.shape))


Vectors = Directions | TokenShares


def token_shares(one: Sequence[Spread], other: Sequence[Spread]) -> tuple[TokenShares, TokenShares]:
    """Token distributions of the experts of two runs, with the same columns."""
    tokens = np.unique([token for spread in (*one, *other) for token, _ in spread])

    def from_spreads(spreads: Sequence[Spread]) -> TokenShares:
        experts_P = np.repeat(np.arange(len(spreads)), [len(spread) for spread in spreads])
        columns_P = np.searchsorted(tokens, [token for spread in spreads for token, _ in spread])
        shares_P = np.array([share for spread in spreads for _, share in spread], np.float32)
        return TokenShares(coo_array((shares_P, (experts_P, columns_P)), shape=(len(spreads), len(tokens))))

    return from_spreads(one), from_spreads(other)


QUERIES_PER_BLOCK = 256
MAX_CONTROL_QUERIES = 500
"""Query experts on which the chance level is measured, at most."""
ROUNDING = 1e-5
"""Cosines that differ by less count as equal."""


class Matches(NamedTuple):
    """Experts of one run with their most similar experts of another."""

    places_Q: Tensor
    """Index of the most similar one among the candidates."""
    cosines_Q: Tensor
    mutual_Q: Tensor
    """True if the query expert is also the most similar one to its match, for one query expert per match at most."""
    chance_cosine: float
    """Median cosine with the most similar control expert."""


def nearest(vectors: Vectors, places_Q: Tensor, candidates: Vectors | _ShuffledDirections) -> tuple[Tensor, Tensor]:
    """Return the index and the cosine of the most similar candidate of each query expert; the first of equal ones."""
    best_Q, indices_Q = torch.full((len(places_Q),), -torch.inf), torch.zeros(len(places_Q), dtype=torch.int64)
    for first in range(0, len(places_Q), QUERIES_PER_BLOCK):
        block = slice(first, first + QUERIES_PER_BLOCK)
        directions_QD = vectors.dense(places_Q[block])
        for start in range(0, len(candidates), EXPERTS_PER_BLOCK):
            cosines_QE = candidates.cosines(directions_QD, start, min(start + EXPERTS_PER_BLOCK, len(candidates)))
            largest_Q = cosines_QE.amax(dim=1)
            index_Q = (cosines_QE >= largest_Q[:, None] - ROUNDING).byte().argmax(dim=1)  # the first of equal ones
            indices_Q[block] = torch.where(largest_Q > best_Q[block] + ROUNDING, index_Q + start, indices_Q[block])
            best_Q[block] = torch.maximum(largest_Q, best_Q[block])
    return indices_Q, best_Q.clamp(-1, 1)


def match(one: Vectors, other: Vectors, places_Q: Tensor, seed: int = 0) -> Matches:
    """Match experts of ``one``, at least one at ``places_Q``, with their most similar experts of ``other``. All experts
    of ``one`` are candidates of the reverse search. ``seed`` is that of the chance level."""
    matched_Q, cosines_Q = nearest(one, places_Q, other)
    chosen, inverse_Q = matched_Q.unique(return_inverse=True)
    reverse, _ = nearest(other, chosen, one)
    sample = torch.randperm(len(places_Q), generator=torch.Generator().manual_seed(seed))[:MAX_CONTROL_QUERIES]
    _, control = nearest(one, places_Q[sample], other.shuffled(seed))
    return Matches(matched_Q, cosines_Q, reverse[inverse_Q] == places_Q, float(control.quantile(0.5)))


@dataclass(frozen=True)
class MatchedExperts:
    """Matched pairs of experts, densest expert of the first run first."""

    by: MatchedBy
    active: int
    other_active: int
    pairs: list[tuple[int, int, float, bool]]
    """Expert, its match, their cosine, and whether the match is mutual."""
    median_cosine: float
    chance_cosine: float


MAX_MATCHED = 2000
"""Number of experts to match, the densest of the first run."""


def match_experts(session: Session, run: RunRecord, other: RunRecord, library: RunLoader) -> MatchedExperts:
    """Match the densest experts of ``run`` with all active ones of ``other``. Raises NoIndexError if one of the runs
    has no active expert, UserError if the runs have different inputs and different tokenizers."""
    one, two = _active(session, run), _active(session, other)
    loaded = library.run(run.name), library.run(other.name)
    by = matched_by(*loaded)
    # Stable: lower ids first among equal densities.
    most_used = np.argsort([-each.active_tokens for each in one], kind="stable")[:MAX_MATCHED]
    if by == "gate":
        vectors: list[Vectors] = [
            Directions(run.run.layer.gate.rows, torch.tensor([each.expert for each in experts]))
            for run, experts in zip(loaded, (one, two), strict=True)
        ]
    else:
        spreads = (
            [[(token, count / each.active_tokens) for token, count in each.top_tokens] for each in experts]
            for experts in (one, two)
        )
        vectors = [*token_shares(*spreads)]
    matches = match(vectors[0], vectors[1], torch.from_numpy(most_used))
    found = zip(most_used.tolist(), *(values.tolist() for values in matches[:3]), strict=True)
    return MatchedExperts(
        by=by,
        active=len(one),
        other_active=len(two),
        pairs=[(one[at].expert, two[place].expert, cosine, mutual) for at, place, cosine, mutual in found],
        median_cosine=float(matches.cosines_Q.quantile(0.5)),
        chance_cosine=matches.chance_cosine,
    )


def matched_by(one: LoadedRun, other: LoadedRun) -> MatchedBy:
    """Return ``gate`` if both runs read the same MLP input, else ``tokens``. Raises UserError if the tokenizers differ,
    too."""
    runs = one.run, other.run
    same_place = len({(run.language_model_source, run.config.layer) for run in runs}) == 1
    if same_place and len({(run.layer.reads, run.layer_config.input_width) for run in runs}) == 1:
        return "gate"
    if one.tokenizer.get_vocab() != other.tokenizer.get_vocab():
        raise UserError(
            f"The language models of '{one.run.name}' and '{other.run.name}' have different tokenizers, so their "
            "experts cannot be matched. Choose runs with one tokenizer."
        )
    return "tokens"


def _active(session: Session, run: RunRecord) -> list[Row[int, int, list[list[int]]]]:
    columns = select(ExpertRecord.expert, ExpertRecord.active_tokens, ExpertRecord.top_tokens)
    query = columns.where(ExpertRecord.run_id == run.id, ExpertRecord.active_tokens > 0)
    active = list(session.execute(query.order_by(ExpertRecord.expert)))
    if not active:
        raise NoIndexError(f"Run '{run.name}' has no active experts. Index more text.")
    return active


TOKENS_SHOWN = 5


def run_comparison(
    session: Session, run: RunRecord, other: RunRecord, matched: MatchedExperts, vocabularies: Sequence[Vocabulary]
) -> RunComparison:
    """Return the matched experts with labels and top tokens. ``vocabularies``: those of both runs."""
    ones = _described(session, run, [one for one, *_ in matched.pairs], vocabularies[0])
    others = _described(session, other, [two for _, two, *_ in matched.pairs], vocabularies[1])
    summary = ("by", "active", "other_active", "median_cosine", "chance_cosine")
    return RunComparison(
        run=run.name,
        other=other.name,
        **{name: getattr(matched, name) for name in summary},
        mutual_share=sum(mutual for *_, mutual in matched.pairs) / len(matched.pairs),
        pairs=tuple(
            MatchedPair(one=ones[one], other=others[two], cosine=cosine, mutual=mutual)
            for one, two, cosine, mutual in matched.pairs
        ),
    )


def _described(
    session: Session, run: RunRecord, experts: Sequence[int], vocabulary: Vocabulary
) -> dict[int, ComparedExpert]:
    labels = both_labels(session, run, experts)
    # Selected columns only: there are thousands of records.
    columns = select(ExpertRecord.expert, ExpertRecord.density, ExpertRecord.top_tokens)
    query = columns.where(ExpertRecord.run_id == run.id, among(session, ExpertRecord.expert, set(experts)))
    return {
        expert: ComparedExpert(
            expert=expert,
            **labels[expert],
            density=density,
            top_tokens=tuple(vocabulary.name(token) for token, _ in top_tokens[:TOKENS_SHOWN]),
        )
        for expert, density, top_tokens in session.execute(query)
    }
