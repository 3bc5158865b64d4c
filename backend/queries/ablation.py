"""Stored ablation effects of an expert."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.inference.token_text import Vocabulary
from mxd.backend.queries.experts import find_expert
from mxd.backend.schemas import Ablation, ExpertAblation
from mxd.trainer.analysis.results import TokenEffect
from mxd.trainer.storage.database.tables import AblationRecord, RunRecord


def expert_ablation(session: Session, run: RunRecord, expert: int, vocabulary: Vocabulary) -> ExpertAblation:
    """Return the measured effects of an expert, if any.

    Raises:
        NoIndexError: the run is not indexed.
        ExpertNotFoundError: the run has no such expert.
    """
    find_expert(session, run, expert)
    record = session.get(AblationRecord, (run.id, expert))
    ablation = None if record is None else _described(session, record, vocabulary)
    return ExpertAblation(ablation=ablation, command=f"mxd ablate {run.name}")


def most_promoted(session: Session, run: RunRecord, experts: Collection[int], vocabulary: Vocabulary) -> dict[int, str]:
    """Return the token that each expert promotes most, for those that were measured."""
    chosen = AblationRecord.run_id == run.id, AblationRecord.expert.in_(experts)
    rows = session.execute(select(AblationRecord.expert, AblationRecord.promoted).where(*chosen))
    return {expert: vocabulary.name(int(promoted[0][0])) for expert, promoted in rows if promoted}


def _described(session: Session, record: AblationRecord, vocabulary: Vocabulary) -> Ablation:
    other = session.get(AblationRecord, (record.run_id, record.random_expert))
    return Ablation(
        examples=record.examples,
        loss_increase=record.loss_increase,
        kl_ablated=record.kl_ablated,
        kl_amplified=record.kl_amplified,
        kl_random_expert=record.kl_random_expert,
        kl_random_direction=record.kl_random_direction,
        random_expert=record.random_expert,
        random_loss_increase=None if other is None else other.loss_increase,
        output_share=record.output_share,
        random_output_share=None if other is None else other.output_share,
        input_dependence=record.input_dependence,
        promoted=_tokens(record.promoted, vocabulary),
        suppressed=_tokens(record.suppressed, vocabulary),
    )


def _tokens(pairs: Sequence[Sequence[float]], vocabulary: Vocabulary) -> tuple[TokenEffect, ...]:
    return tuple(TokenEffect(id=int(token), text=vocabulary.name(int(token)), change=change) for token, change in pairs)
