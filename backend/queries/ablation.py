"""Stored ablation effects of an expert, and what is needed to compute what it writes."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.schemas.experts import Ablation
from mxd.trainer.analysis.results import TokenEffect
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import AblationRecord, ExampleRecord, RunRecord, SequenceRecord


def expert_ablation(session: Session, run: RunRecord, expert: int, vocabulary: Vocabulary) -> Ablation | None:
    """Return the measured effects of an expert, if any."""
    record = session.get(AblationRecord, (run.id, expert))
    if record is None:
        return None
    other = session.get(AblationRecord, (record.run_id, record.random_expert))
    tokens = {side: _tokens(getattr(record, side), vocabulary) for side in ("promoted", "suppressed")}
    return Ablation(
        **{name: getattr(record, name) for name in Ablation.model_fields if hasattr(record, name)} | tokens,
        random_loss_increase=None if other is None else other.loss_increase,
        random_output_share=None if other is None else other.output_share,
        exceeds_random=exceeds(tokens["promoted"], () if other is None else _tokens(other.promoted, vocabulary)),
    )


STRONGEST_EXAMPLES = 8
"""Strongest examples among which are those from which it is computed what an expert writes."""
WRITTEN_EXAMPLES = 3
"""Number of these: few, and those with the fewest tokens before the peak, so that it takes less than a second."""
NEIGHBOURS = 8
"""Experts of the most similar density, of which one is the random expert."""
EXCEEDS_FACTOR = 2.0
"""Half of all experts exceed another one of the same density; about one in seven does so by this factor."""

ExampleTokens = tuple[list[int], int]
"""Token ids of a sequence, and the position of an active token."""


def written_examples(session: Session, run: RunRecord, expert: int) -> list[ExampleTokens]:
    """Return the sequences and positions of some of an expert's strongest examples; empty for a dead expert."""
    query = (
        select(SequenceRecord.token_ids, ExampleRecord.position)
        .join(
            SequenceRecord,
            (SequenceRecord.run_id == ExampleRecord.run_id) & (SequenceRecord.sequence == ExampleRecord.sequence),
        )
        .where(ExampleRecord.run_id == run.id, ExampleRecord.expert == expert, ExampleRecord.bin == 0)
        .order_by(ExampleRecord.rank)
        .limit(STRONGEST_EXAMPLES)
    )
    shortest = sorted(session.execute(query), key=lambda row: row.position)[:WRITTEN_EXAMPLES]
    return [(np.frombuffer(ids, "<u4").astype(np.int64).tolist(), position) for ids, position in shortest]


def random_expert(session: Session, run: RunRecord, expert: int) -> int | None:
    """Return an active expert of similar density, the same one each time; None if there is no other."""
    density = select(ExpertRecord.density).where(ExpertRecord.run_id == run.id, ExpertRecord.expert == expert)
    query = (
        select(ExpertRecord.expert)
        .where(ExpertRecord.run_id == run.id, ExpertRecord.expert != expert, ExpertRecord.density > 0)
        .order_by(func.abs(ExpertRecord.density - density.scalar_subquery()), ExpertRecord.expert)
        .limit(NEIGHBOURS)
    )
    neighbours = session.scalars(query).all()
    return random.Random(expert).choice(neighbours) if neighbours else None


def exceeds(promoted: Sequence[TokenEffect], others: Sequence[TokenEffect]) -> bool:
    """Return whether an expert's largest rise of a log-probability says more than a random expert's. Both promoted
    tokens are sorted by change, largest first; ``others`` is empty without a random expert."""
    largest, of_random = (max([0.0, *(token.change for token in tokens[:1])]) for tokens in (promoted, others))
    return largest > 0 and largest >= EXCEEDS_FACTOR * of_random


def most_promoted(session: Session, run: RunRecord, experts: Collection[int], vocabulary: Vocabulary) -> dict[int, str]:
    """Return the token that each expert promotes most, for those that were measured."""
    chosen = AblationRecord.run_id == run.id, AblationRecord.expert.in_(experts)
    rows = session.execute(select(AblationRecord.expert, AblationRecord.promoted).where(*chosen))
    return {expert: vocabulary.name(int(promoted[0][0])) for expert, promoted in rows if promoted}


def _tokens(pairs: Sequence[Sequence[float]], vocabulary: Vocabulary) -> tuple[TokenEffect, ...]:
    return tuple(TokenEffect(id=int(token), text=vocabulary.name(int(token)), change=change) for token, change in pairs)
