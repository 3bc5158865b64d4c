"""Comparison of the experts of two runs, matched by similarity.

Shapes: E active or chosen experts, D width of a direction (input width or number of distinct tokens), Q experts to
match, P pairs of an expert and a token, S sampled experts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session
from torch import Tensor

from mxd.backend.database.annotations import labels_of
from mxd.backend.database.engine import among
from mxd.backend.errors import NoIndexError
from mxd.backend.inference.run_loader import LoadedRun, RunLoader, Vocabulary
from mxd.backend.queries.automatic_labels import shown_labels
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

    def __init__(self, experts_P: Tensor, columns_P: Tensor, shares_P: Tensor, shape: tuple[int, int]) -> None:
        """``experts_P`` is ascending; ``shape`` is [E, D]."""
        self._shape, self._pairs = shape, (experts_P, columns_P, shares_P)
        table_ED = _sparse(experts_P, columns_P, shares_P, shape).coalesce()
        rows_P, columns_P = table_ED.indices()
        norms_E = torch.zeros(shape[0]).index_add_(0, rows_P, table_ED.values().square()).sqrt().clamp_min(TINY)
        self._rows_P, self._columns_P, self._values_P = rows_P, columns_P, table_ED.values() / norms_E[rows_P]
        self._starts_E = torch.searchsorted(rows_P, torch.arange(shape[0] + 1))

    def __len__(self) -> int:
        return self._shape[0]

    def dense(self, rows_E: Tensor) -> Tensor:
        """Unit directions of some experts, with one column per token id."""
        dense_ED = torch.zeros(len(rows_E), self._shape[1])
        for index, row in enumerate(rows_E.tolist()):
            entries = self._entries(row, row + 1)
            dense_ED[index, self._columns_P[entries]] = self._values_P[entries]
        return dense_ED

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        entries = self._entries(start, end)
        shape = end - start, self._shape[1]
        block_ED = _sparse(self._rows_P[entries] - start, self._columns_P[entries], self._values_P[entries], shape)
        products_EQ: Tensor = torch.sparse.mm(block_ED, directions_QD.T.contiguous())
        return products_EQ.T

    def shuffled(self, seed: int) -> TokenShares:
        """Control experts with as many tokens each, whose tokens and shares are permuted among all."""
        experts_P, columns_P, shares_P = self._pairs
        order = torch.randperm(len(shares_P), generator=torch.Generator().manual_seed(seed))
        return TokenShares(experts_P, columns_P[order], shares_P[order], self._shape)

    def _entries(self, start: int, end: int) -> slice:
        """The table's entries of the experts ``start`` to ``end``."""
        return slice(int(self._starts_E[start]), int(self._starts_E[end]))


def _sparse(rows_P: Tensor, columns_P: Tensor, values_P: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_coo_tensor(torch.stack([rows_P, columns_P]), values_P, shape, check_invariants=True)


Vectors = Directions | TokenShares


def token_shares(one: Sequence[Spread], other: Sequence[Spread]) -> tuple[TokenShares, TokenShares]:
    """Token distributions of the experts of two runs, with the same columns."""
    tokens = sorted({token for spread in (*one, *other) for token, _ in spread})
    columns = {token: column for column, token in enumerate(tokens)}

    def from_spreads(spreads: Sequence[Spread]) -> TokenShares:
        pairs = [(row, columns[token], share) for row, spread in enumerate(spreads) for token, share in spread]
        pairs_P3 = np.array(pairs, np.float64).reshape(-1, 3)
        experts_P, columns_P = torch.from_numpy(pairs_P3[:, :2].astype(np.int64)).T.contiguous()
        shares_P = torch.from_numpy(pairs_P3[:, 2].astype(np.float32))
        return TokenShares(experts_P, columns_P, shares_P, (len(spreads), len(tokens)))

    return from_spreads(one), from_spreads(other)


QUERIES_PER_BLOCK = 256
MAX_CONTROL_QUERIES = 500
"""Query experts on which the chance level is measured, at most."""
ROUNDING = 1e-5
"""Cosines that differ by less count as equal."""


class Nearest(NamedTuple):
    """The most similar candidate of each query expert."""

    places_Q: Tensor
    """Index among the candidates."""
    cosines_Q: Tensor


class Matches(NamedTuple):
    """Experts of one run with their most similar experts of another."""

    nearest: Nearest
    mutual_Q: Tensor
    """True if the query expert is also the most similar one to its match, for one query expert per match at most."""
    chance_cosine: float
    """Median cosine with the most similar control expert."""


def nearest(vectors: Vectors, places_Q: Tensor, candidates: Vectors | _ShuffledDirections) -> Nearest:
    """Find the most similar candidate of each query expert; the first of equal ones."""
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
    return Nearest(indices_Q, best_Q.clamp(-1, 1))


def match(one: Vectors, other: Vectors, places_Q: Tensor, seed: int = 0) -> Matches:
    """Match experts of ``one``, at least one at ``places_Q``, with their most similar experts of ``other``. All experts
    of ``one`` are candidates of the reverse search. ``seed`` is that of the chance level."""
    matched = nearest(one, places_Q, other)
    chosen, inverse_Q = matched.places_Q.unique(return_inverse=True)
    reverse = nearest(other, chosen, one)
    sample = torch.randperm(len(places_Q), generator=torch.Generator().manual_seed(seed))[:MAX_CONTROL_QUERIES]
    control = nearest(one, places_Q[sample], other.shuffled(seed))
    mutual_Q = reverse.places_Q[inverse_Q] == places_Q
    return Matches(matched, mutual_Q, float(control.cosines_Q.quantile(0.5)))


@dataclass(frozen=True)
class MatchedExperts:
    """Matched pairs of experts, densest expert of the first run first."""

    by: MatchedBy
    active: int
    other_active: int
    one_Q: list[int]
    other_Q: list[int]
    cosines_Q: list[float]
    mutual_Q: list[bool]
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
        vectors = [*token_shares([each.spread for each in one], [each.spread for each in two])]
    matches = match(vectors[0], vectors[1], torch.from_numpy(most_used))
    return MatchedExperts(
        by=by,
        active=len(one),
        other_active=len(two),
        one_Q=[one[place].expert for place in most_used.tolist()],
        other_Q=[two[place].expert for place in matches.nearest.places_Q.tolist()],
        cosines_Q=matches.nearest.cosines_Q.tolist(),
        mutual_Q=matches.mutual_Q.tolist(),
        median_cosine=float(matches.nearest.cosines_Q.quantile(0.5)),
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


class _ActiveExpert(NamedTuple):
    expert: int
    active_tokens: int
    top_tokens: list[list[int]]

    @property
    def spread(self) -> list[tuple[int, float]]:
        return [(token, count / self.active_tokens) for token, count in self.top_tokens]


def _active(session: Session, run: RunRecord) -> list[_ActiveExpert]:
    columns = select(ExpertRecord.expert, ExpertRecord.active_tokens, ExpertRecord.top_tokens)
    query = columns.where(ExpertRecord.run_id == run.id, ExpertRecord.active_tokens > 0)
    matches = [_ActiveExpert(*row) for row in session.execute(query.order_by(ExpertRecord.expert))]
    if not matches:
        raise NoIndexError(f"Run '{run.name}' has no active experts. Index more text.")
    return matches


TOKENS_SHOWN = 5


def run_comparison(
    session: Session, run: RunRecord, other: RunRecord, matched: MatchedExperts, vocabularies: Sequence[Vocabulary]
) -> RunComparison:
    """Return the matched experts with labels and top tokens. ``vocabularies``: those of both runs."""
    ones = _described(session, run, matched.one_Q, vocabularies[0])
    others = _described(session, other, matched.other_Q, vocabularies[1])
    return RunComparison(
        run=run.name,
        other=other.name,
        **{name: getattr(matched, name) for name in RunComparison.model_fields if hasattr(matched, name)},
        mutual_share=sum(matched.mutual_Q) / len(matched.mutual_Q),
        pairs=tuple(
            MatchedPair(one=ones[one], other=others[two], cosine=cosine, mutual=mutual)
            for one, two, cosine, mutual in zip(
                matched.one_Q, matched.other_Q, matched.cosines_Q, matched.mutual_Q, strict=True
            )
        ),
    )


def _described(
    session: Session, run: RunRecord, experts: Sequence[int], vocabulary: Vocabulary
) -> dict[int, ComparedExpert]:
    labels, automatic = labels_of(session, run.name, experts), shown_labels(session, run, experts)
    # Selected columns only: there are thousands of records.
    columns = select(ExpertRecord.expert, ExpertRecord.density, ExpertRecord.top_tokens)
    query = columns.where(ExpertRecord.run_id == run.id, among(session, ExpertRecord.expert, set(experts)))
    return {
        expert: ComparedExpert(
            expert=expert,
            label=labels.get(expert),
            automatic=automatic.get(expert),
            density=density,
            top_tokens=tuple(vocabulary.name(token) for token, _ in top_tokens[:TOKENS_SHOWN]),
        )
        for expert, density, top_tokens in session.execute(query)
    }
