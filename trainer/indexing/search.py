"""The searchable documents of a run's experts, from the contexts that the store has of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from trainer.indexing.write import EXPERTS_PER_INSERT
from trainer.packing import TOKEN_IDS
from trainer.search_text import SEARCH_MARGIN, insert_search, make_search_table, search_body
from trainer.store import ContextRecord, SequenceRecord

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Window = tuple[int, list[int]]
"""An expert, and the token ids around the peak of one of its largest contexts."""


def index_search(session: Session, run_id: int, tokenizer: PreTrainedTokenizerBase) -> None:
    """Enter a document of every expert with contexts, in the caller's transaction; the run must have none yet."""
    make_search_table(session, run_id)
    by_expert = groupby(_windows(session, run_id), key=lambda window: window[0])
    gathered: list[tuple[int, str]] = []
    for expert, windows in by_expert:
        gathered.append((expert, search_body(tokenizer.batch_decode([ids for _, ids in windows]))))
        if len(gathered) == EXPERTS_PER_INSERT:
            insert_search(session, run_id, gathered)
            gathered = []
    insert_search(session, run_id, gathered)


def _windows(session: Session, run_id: int) -> Iterator[Window]:
    together = and_(SequenceRecord.run_id == ContextRecord.run_id, SequenceRecord.sequence == ContextRecord.sequence)
    wanted = (
        select(ContextRecord.expert, ContextRecord.position, SequenceRecord.token_ids)
        .join(SequenceRecord, together)
        .where(ContextRecord.run_id == run_id, ContextRecord.interval == 0)
        .order_by(ContextRecord.expert, ContextRecord.rank)
    )
    for expert, position, packed in session.execute(wanted):
        ids = np.frombuffer(packed, TOKEN_IDS)
        yield expert, ids[max(0, position - SEARCH_MARGIN) : position + SEARCH_MARGIN + 1].tolist()
