"""Held-out texts of one expert for detection, fuzzing and embedding scores."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.analysis.labelling.llm_examples import TOKENS_AFTER, TOKENS_BEFORE, label_positions
from mxd.trainer.language_model.tokenizer import token_texts
from mxd.trainer.storage.database.column_types import ACTIVE, TOKEN_IDS
from mxd.trainer.storage.database.tables import ExampleRecord, RunRecord, SequenceRecord

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Window:
    """Tokens around a position of a sequence."""

    tokens: tuple[str, ...]
    marked: int
    """Index of the token at the position."""

    @property
    def text(self) -> str:
        """Text without a mark."""
        return "".join(self.tokens)

    @property
    def marked_text(self) -> str:
        """Text with the token between «»."""
        before, after = self.tokens[: self.marked], self.tokens[self.marked + 1 :]
        return f"{''.join(before)}«{self.tokens[self.marked]}»{''.join(after)}"


@dataclass(frozen=True)
class ScoringTexts:
    """Texts of one expert. Fuzzing pairs each active text with itself, marked elsewhere."""

    active: tuple[Window, ...]
    inactive: tuple[Window, ...]
    """Texts of other sequences without an active token."""
    wrongly_marked: tuple[Window, ...]
    """The active texts that have an inactive token, with a random inactive token marked."""


def read_scoring_texts(
    session: Session, run: RunRecord, expert: int, tokenizer: PreTrainedTokenizerBase, count: int
) -> ScoringTexts:
    """Read at most ``count`` held-out texts of each kind."""
    positions = label_positions(session, run, expert, count)
    generator = random.Random(expert)
    active, wrongly_marked = [], []
    for sequence, position in positions.active:
        window, first = _window(session, run, tokenizer, sequence, position)
        active.append(window)
        places = _active_places(session, run, expert, sequence)
        others = [index for index in range(len(window.tokens)) if first + index not in places and first + index > 0]
        if others:
            wrongly_marked.append(Window(window.tokens, generator.choice(others)))
    inactive = [_window(session, run, tokenizer, *position)[0] for position in positions.inactive]
    return ScoringTexts(tuple(active), tuple(inactive), tuple(wrongly_marked))


def _window(
    session: Session, run: RunRecord, tokenizer: PreTrainedTokenizerBase, sequence: int, position: int
) -> tuple[Window, int]:
    """Return the tokens around a position, and the position of the first of them."""
    packed = session.get_one(SequenceRecord, (run.id, sequence)).token_ids
    first = max(0, position - TOKENS_BEFORE)
    ids: Sequence[int] = np.frombuffer(packed, TOKEN_IDS)[first : position + TOKENS_AFTER + 1].tolist()
    return Window(tuple(token_texts(tokenizer, ids)), position - first), first


def _active_places(session: Session, run: RunRecord, expert: int, sequence: int) -> set[int]:
    """Positions of a stored sequence on which the expert is active."""
    query = select(ExampleRecord.active).where(
        ExampleRecord.run_id == run.id, ExampleRecord.expert == expert, ExampleRecord.sequence == sequence
    )
    packed = session.scalars(query.limit(1)).one()
    return set(np.frombuffer(packed, ACTIVE)["position"].tolist())
