"""Comparison of the experts of two runs, matched by similarity.

Shapes: E active experts, Q experts to match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import labels_of
from mxd.backend.database.sql import among
from mxd.backend.errors import NoIndexError
from mxd.backend.inference.run_loader import LoadedRun, RunLoader, Vocabulary
from mxd.backend.inference.similarity import Directions, Vectors, match, token_shares
from mxd.backend.queries.automatic_labels import shown_labels
from mxd.backend.schemas.comparison import ComparedExpert, MatchedBy, MatchedPair, RunComparison
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import RunRecord


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
