"""Comparison of the experts of two runs.

Shapes: Q experts that look for their nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.database import annotations as notes
from mxd.backend.database.sql import among
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.automatic_labels import shown_labels
from mxd.backend.schemas.comparison import (
    ComparedExpert,
    MatchedPair,
    RunComparison,
)
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import RunRecord

if TYPE_CHECKING:
    from mxd.backend.queries.matching import MatchedExperts

TOKENS_SHOWN = 5


def run_comparison(
    session: Session, run: RunRecord, other: RunRecord, matched: MatchedExperts, vocabularies: Sequence[Vocabulary]
) -> RunComparison:
    """Return the matched experts with labels and top tokens.

    Args:
        session: database session.
        run: first run.
        other: second run.
        matched: their matched experts.
        vocabularies: vocabularies of both runs.
    """
    ones = _described(session, run, matched.one_Q, vocabularies[0])
    others = _described(session, other, matched.other_Q, vocabularies[1])
    return RunComparison(
        run=run.name,
        other=other.name,
        by=matched.by,
        active=matched.active,
        other_active=matched.other_active,
        mutual_share=sum(matched.mutual_Q) / len(matched.mutual_Q),
        median_cosine=matched.median_cosine,
        chance_cosine=matched.chance_cosine,
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
    labels, automatic = notes.labels_of(session, run.name, experts), shown_labels(session, run, experts)
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
