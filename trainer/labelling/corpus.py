"""What labelling reads from the store: sequences as columns, contexts of every expert, and the routed sample.

Shapes: C columns, T tokens of all stored sequences, P places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from trainer.errors import DamagedStoreError, UserError
from trainer.labelling.features import COLUMNS, Describer
from trainer.packing import unpack_routed
from trainer.progress import ShouldStop
from trainer.store import ContextRecord, ExpertRecord, RunRecord, SequenceRecord
from trainer.tables import RoutedRecord
from trainer.tokens import separator_id, token_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKEN_IDS = np.dtype("<u4")
BLOCK = 4
"""Sequences that follow each other are held back together: a document may go over several."""

Places = NDArray[np.int64]


class Stopped(UserError):
    """Labelling was stopped; the store is as it was."""


@dataclass(frozen=True)
class Grouped:
    """Places by expert."""

    places: Places
    """[P], expert by expert."""
    ends: Places
    """[N + 1]: where each expert's begin."""

    def of(self, expert: int) -> Places:
        """Those of one expert."""
        return self.places[self.ends[expert] : self.ends[expert + 1]]

    @classmethod
    def make(cls, expert_P: Places, place_P: Places, num_experts: int) -> Grouped:
        """Sort places by expert; each is kept once."""
        if len(expert_P) != len(place_P):
            raise DamagedStoreError
        pairs = np.unique(np.stack([expert_P, place_P], axis=1), axis=0)
        return cls(pairs[:, 1], np.searchsorted(pairs[:, 0], np.arange(num_experts + 1)))


@dataclass(frozen=True)
class Corpus:
    """Every stored token as columns, and where each expert is active."""

    describer: Describer
    columns_CT: NDArray[np.int32]
    held_back_T: NDArray[np.bool_]
    """Whether a token is kept for testing."""
    contexts: Grouped
    """Places of the stored contexts of each expert."""
    sample: Places
    """Places of all tokens of the routed sample, in order."""
    active: Grouped
    """Places of the sample on which each expert is active."""
    usage_N: NDArray[np.float64]


def read_corpus(
    session: Session, run: RunRecord, tokenizer: PreTrainedTokenizerBase, should_stop: ShouldStop
) -> Corpus:
    """Read all that labelling needs.

    Raises:
        UserError: the run has no index, or ``should_stop`` said so.
    """
    usage = np.array(
        session.scalars(
            select(ExpertRecord.usage).where(ExpertRecord.run_id == run.id).order_by(ExpertRecord.expert)
        ).all()
    )
    numbers, sequences = _sequences(session, run)
    if not len(usage) or not numbers:
        raise UserError(
            f"The run {run.name} has no index to label from; make one with mxd index {run.name} --text … --tokens …."
        )
    lengths = np.array([len(ids) for ids in sequences])
    starts = np.concatenate([[0], lengths.cumsum()])
    offsets = np.full(max(numbers) + 1, -1)
    offsets[numbers] = starts[:-1]
    describer = Describer(str(tokenizer.convert_ids_to_tokens(separator_id(tokenizer))))
    columns_CT = _columns(describer, tokenizer, sequences, starts, should_stop)
    sample, active = _sample(session, run, offsets)
    return Corpus(
        describer=describer,
        columns_CT=columns_CT,
        held_back_T=np.repeat(np.array(numbers) // BLOCK % 2 == 1, lengths),
        contexts=_contexts(session, run, offsets),
        sample=sample,
        active=active,
        usage_N=usage,
    )


def _sequences(session: Session, run: RunRecord) -> tuple[list[int], list[Places]]:
    wanted = select(SequenceRecord.sequence, SequenceRecord.token_ids).where(SequenceRecord.run_id == run.id)
    rows = session.execute(wanted.order_by(SequenceRecord.sequence)).all()
    return [row.sequence for row in rows], [np.frombuffer(row.token_ids, TOKEN_IDS).astype(np.int64) for row in rows]


def _columns(
    describer: Describer,
    tokenizer: PreTrainedTokenizerBase,
    sequences: Sequence[Places],
    starts: Places,
    should_stop: ShouldStop,
) -> NDArray[np.int32]:
    columns_CT = np.zeros((len(COLUMNS), starts[-1]), np.int32)
    for number, ids in enumerate(sequences):
        if should_stop():
            raise Stopped("Labelling was stopped; nothing was changed. Run the same command to start it again.")
        columns_CT[:, starts[number] : starts[number + 1]] = describer.columns(token_texts(tokenizer, ids.tolist()))
    return columns_CT


def _contexts(session: Session, run: RunRecord, offsets: Places) -> Grouped:
    wanted = select(ContextRecord.expert, ContextRecord.sequence, ContextRecord.position)
    rows = np.array(session.execute(wanted.where(ContextRecord.run_id == run.id)).all(), np.int64).reshape(-1, 3)
    return Grouped.make(rows[:, 0], offsets[rows[:, 1]] + rows[:, 2], run.num_experts)


def _sample(session: Session, run: RunRecord, offsets: Places) -> tuple[Places, Grouped]:
    tokens, experts, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    wanted = select(RoutedRecord).where(RoutedRecord.run_id == run.id).order_by(RoutedRecord.sequence)
    for record in session.scalars(wanted):
        counts, active = unpack_routed(record.counts, record.experts, run.num_experts)
        here = offsets[record.sequence] + np.arange(len(counts))
        tokens.append(here)
        experts.append(active)
        places.append(np.repeat(here, counts))
    return np.concatenate(tokens), Grouped.make(np.concatenate(experts), np.concatenate(places), run.num_experts)
