"""Short texts for a language model: some on which an expert is active, and some on which it is not."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.analysis.labelling.corpus import BLOCK_SEQUENCES
from mxd.trainer.language_model.tokenizer import token_texts
from mxd.trainer.storage.database.column_types import unpack_routed
from mxd.trainer.storage.database.tables import ExampleRecord, RoutedRecord, RunRecord, SequenceRecord

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENS_BEFORE, TOKENS_AFTER = 24, 6
TOKEN_IDS = np.dtype("<u4")


@dataclass(frozen=True)
class LabelExamples:
    """Texts of one expert, each with one token marked by «»."""

    explained: tuple[str, ...]
    """Texts to explain. The marked token is active."""
    active: tuple[str, ...]
    """Held-out texts to test the explanation on. The marked token is active."""
    inactive: tuple[str, ...]
    """Held-out texts without any active token."""


@dataclass(frozen=True)
class LabelPositions:
    """(sequence, position) of tokens of one expert. Explained and held-out ones come from different blocks."""

    explained: tuple[tuple[int, int], ...]
    """Active tokens to explain."""
    active: tuple[tuple[int, int], ...]
    """Held-out active tokens."""
    inactive: tuple[tuple[int, int], ...]
    """Held-out tokens without an active token nearby."""


def read_label_examples(
    session: Session, run: RunRecord, expert: int, tokenizer: PreTrainedTokenizerBase, explained: int, tested: int
) -> LabelExamples:
    """Read texts of one expert. Explained and held-out texts never come from the same block of sequences.

    Args:
        explained: maximum number of texts to explain.
        tested: maximum number of held-out texts of each kind.
    """
    positions = label_positions(session, run, expert, tested)
    return LabelExamples(
        tuple(_marked_text(session, run, tokenizer, *position) for position in positions.explained[:explained]),
        tuple(_marked_text(session, run, tokenizer, *position) for position in positions.active),
        tuple(_marked_text(session, run, tokenizer, *position) for position in positions.inactive),
    )


def label_positions(session: Session, run: RunRecord, expert: int, tested: int) -> LabelPositions:
    """Choose tokens of one expert, at most ``tested`` held-out ones of each kind. The same arguments give the same."""
    query = select(ExampleRecord.sequence, ExampleRecord.position).where(
        ExampleRecord.run_id == run.id, ExampleRecord.expert == expert
    )
    positions = list(
        dict.fromkeys(
            (row.sequence, row.position)
            for row in session.execute(query.order_by(ExampleRecord.bin, ExampleRecord.rank))
        )
    )
    held_out = [position for position in positions if position[0] // BLOCK_SEQUENCES % 2 == 1]
    generator = random.Random(expert)
    active = generator.sample(held_out, min(tested, len(held_out)))
    return LabelPositions(
        explained=tuple(position for position in positions if position[0] // BLOCK_SEQUENCES % 2 == 0),
        active=tuple(active),
        inactive=tuple(_inactive_positions(session, run, expert, len(active), generator)),
    )


def _inactive_positions(
    session: Session, run: RunRecord, expert: int, count: int, generator: random.Random
) -> list[tuple[int, int]]:
    """Random tokens of the routed sample, one per sequence, without the expert being active nearby."""
    numbers = list(session.scalars(select(RoutedRecord.sequence).where(RoutedRecord.run_id == run.id)))
    generator.shuffle(numbers)
    inactive: list[tuple[int, int]] = []
    for number in numbers:
        if len(inactive) == count:
            break
        record = session.get_one(RoutedRecord, (run.id, number))
        counts, experts = unpack_routed(record.counts, record.experts, run.num_experts)
        active = set(np.repeat(np.arange(len(counts)), counts)[experts == expert].tolist())
        position = generator.randrange(1, len(counts))
        if not active.intersection(range(position - TOKENS_BEFORE, position + TOKENS_AFTER + 1)):
            inactive.append((number, position))
    return inactive


def _marked_text(
    session: Session, run: RunRecord, tokenizer: PreTrainedTokenizerBase, sequence: int, position: int
) -> str:
    packed = session.get_one(SequenceRecord, (run.id, sequence)).token_ids
    ids: NDArray[np.uint32] = np.frombuffer(packed, TOKEN_IDS)
    first = max(0, position - TOKENS_BEFORE)
    texts = token_texts(tokenizer, ids[first : position + TOKENS_AFTER + 1].tolist())
    marked = position - first
    return f"{''.join(texts[:marked])}«{texts[marked]}»{''.join(texts[marked + 1 :])}"
