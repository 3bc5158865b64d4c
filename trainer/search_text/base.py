"""What the full-text search of a database has to offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection
from sqlalchemy.orm import Session

SEARCH_MARGIN = 12
"""Tokens on either side of the peak whose text can be searched."""
SEARCH_REACH = 10
"""Words that are searched for together stand at most this far apart."""
GAP_WORD = "\ue000"
"""A private character, which nobody searches for, is a word."""
GAP = f" {GAP_WORD}" * (SEARCH_REACH + 1) + " "
"""Keeps the end of one context from the beginning of the next."""


LastWord = Literal["whole", "beginning"]
"""Whether the last word is found as it stands, or begins what is found."""
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Ranked:
    """How many experts are ranked."""

    candidates: int
    """The first of those found, by expert: of a word that is nearly everywhere, every expert says little."""
    most: int
    """At most as many are given."""


class TextIndex(ABC):
    """Documents of experts by run, and the words in them. Everything happens in the caller's transaction."""

    @abstractmethod
    def prepare(self, connection: Connection) -> None:
        """Make what all runs share, where it is missing."""

    @abstractmethod
    def make(self, session: Session, run_id: int) -> None:
        """Get ready for the documents of a run that has none."""

    @abstractmethod
    def insert(self, session: Session, run_id: int, bodies: Sequence[tuple[int, str]]) -> None:
        """Enter (expert, document) pairs, at least one."""

    @abstractmethod
    def delete(self, session: Session, run_id: int) -> None:
        """Delete the documents of a run, if there are any."""

    @abstractmethod
    def count(self, session: Session, run_id: int) -> int:
        """Documents of a run."""

    @abstractmethod
    def compact(self, connection: Connection, run_id: int) -> None:
        """Join the pieces that a run's words were written in."""

    @abstractmethod
    def found(self, session: Session, run_id: int, words: Sequence[str]) -> Ints:
        """Experts whose document has all words near each other, the last word as a beginning."""

    @abstractmethod
    def best(
        self, session: Session, run_id: int, words: Sequence[str], last: LastWord, ranked: Ranked
    ) -> tuple[int, ...]:
        """Of those whose document has all words near each other the best, best first."""


def is_beginning(word: str) -> bool:
    """Whether the last word that was typed may stand for all that begin with it: a single letter begins too much."""
    return len(word) > 1


def listed(experts: str | None) -> Ints:
    """Experts that a database gave as one text, joined by commas: a common word is in the contexts of every expert."""
    return np.fromstring(experts or "", np.int32, sep=",")
