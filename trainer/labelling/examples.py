"""Stretches of text to show to a language model: where an expert fires, and where it is silent."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from trainer.labelling.corpus import BLOCK
from trainer.packing import unpack_routed
from trainer.store import ContextRecord, RunRecord, SequenceRecord
from trainer.tables import RoutedRecord
from trainer.tokens import token_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BEFORE, AFTER = 24, 6
TOKEN_IDS = np.dtype("<u4")


@dataclass(frozen=True)
class Examples:
    """What is shown of one expert: some to explain, others, held back, to test the explanation on."""

    shown: tuple[str, ...]
    """Where it fires, the token in «»."""
    firing: tuple[str, ...]
    silent: tuple[str, ...]
    """As long and marked in the same way, but the expert is active nowhere in it."""


def examples_of(
    session: Session, run: RunRecord, expert: int, tokenizer: PreTrainedTokenizerBase, show: int, test: int
) -> Examples:
    """Examples of one expert; the halves never share a sequence, nor a block of neighbouring ones."""
    wanted = select(ContextRecord.sequence, ContextRecord.position).where(
        ContextRecord.run_id == run.id, ContextRecord.expert == expert
    )
    places = list(
        dict.fromkeys(
            (row.sequence, row.position)
            for row in session.execute(wanted.order_by(ContextRecord.interval, ContextRecord.rank))
        )
    )
    to_show = [place for place in places if place[0] // BLOCK % 2 == 0]
    held_back = [place for place in places if place[0] // BLOCK % 2 == 1]
    chance = random.Random(expert)
    tested = chance.sample(held_back, min(test, len(held_back)))
    silent = _silent_places(session, run, expert, len(tested), chance)
    return Examples(
        tuple(_stretch(session, run, tokenizer, *place) for place in to_show[:show]),
        tuple(_stretch(session, run, tokenizer, *place) for place in tested),
        tuple(_stretch(session, run, tokenizer, *place) for place in silent),
    )


def _silent_places(
    session: Session, run: RunRecord, expert: int, count: int, chance: random.Random
) -> list[tuple[int, int]]:
    """Tokens of the routed sample around which the expert is active nowhere, each in another sequence."""
    numbers = list(session.scalars(select(RoutedRecord.sequence).where(RoutedRecord.run_id == run.id)))
    chance.shuffle(numbers)
    found: list[tuple[int, int]] = []
    for number in numbers:
        if len(found) == count:
            break
        record = session.get_one(RoutedRecord, (run.id, number))
        counts, experts = unpack_routed(record.counts, record.experts, run.num_experts)
        active = set(np.repeat(np.arange(len(counts)), counts)[experts == expert].tolist())
        position = chance.randrange(1, len(counts))
        if not active.intersection(range(position - BEFORE, position + AFTER + 1)):
            found.append((number, position))
    return found


def _stretch(session: Session, run: RunRecord, tokenizer: PreTrainedTokenizerBase, sequence: int, position: int) -> str:
    packed = session.get_one(SequenceRecord, (run.id, sequence)).token_ids
    ids: NDArray[np.uint32] = np.frombuffer(packed, TOKEN_IDS)
    first = max(0, position - BEFORE)
    texts = token_texts(tokenizer, ids[first : position + AFTER + 1].tolist())
    here = position - first
    return f"{''.join(texts[:here])}«{texts[here]}»{''.join(texts[here + 1 :])}"
