"""What has been measured of an expert's influence."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from backend.queries.experts import find_expert
from backend.schemas import ExpertInfluence, Influence, TokenEffect
from backend.vocabulary import Vocabulary
from trainer.store import InfluenceRecord, RunRecord


def expert_influence(session: Session, run: RunRecord, expert: int, vocabulary: Vocabulary) -> ExpertInfluence:
    """What an expert does and how much it matters, if that has been measured.

    Raises:
        NoIndexError: the run has not been indexed.
        ExpertNotFoundError: it has no such expert.
    """
    find_expert(session, run, expert)
    record = session.get(InfluenceRecord, (run.id, expert))
    influence = None if record is None else _described(session, record, vocabulary)
    return ExpertInfluence(influence=influence, command=f"mxd influence {run.name}")


def _described(session: Session, record: InfluenceRecord, vocabulary: Vocabulary) -> Influence:
    other = session.get(InfluenceRecord, (record.run_id, record.other))
    return Influence(
        contexts=record.contexts,
        added_loss=record.added_loss,
        kl_off=record.kl_off,
        kl_up=record.kl_up,
        kl_other=record.kl_other,
        kl_direction=record.kl_direction,
        other=record.other,
        other_added_loss=None if other is None else other.added_loss,
        output_share=record.output_share,
        other_output_share=None if other is None else other.output_share,
        input_dependence=record.input_dependence,
        promoted=_tokens(record.promoted, vocabulary),
        suppressed=_tokens(record.suppressed, vocabulary),
    )


def _tokens(pairs: Sequence[Sequence[float]], vocabulary: Vocabulary) -> tuple[TokenEffect, ...]:
    return tuple(TokenEffect(id=int(token), text=vocabulary.name(int(token)), change=change) for token, change in pairs)
