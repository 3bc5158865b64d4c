"""Interface of the full-text search backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from mxd.trainer.storage.database.search.words import GAP_WORD

SEARCH_MARGIN = 12
"""Number of searchable tokens on either side of a peak."""
SEARCH_REACH = 10
"""Maximum distance between the words of a query."""
GAP = f" {GAP_WORD}" * (SEARCH_REACH + 1) + " "
"""Separates examples by more than ``SEARCH_REACH`` words."""


LastWord = Literal["whole", "beginning"]
"""True if the last word must match completely or as a prefix."""
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Ranked:
    """Limits of a ranking."""

    candidates: int
    """Number of matches to rank, lowest expert id first."""
    most: int
    """Maximum number of results."""


class TextIndex(ABC):
    """Full-text index with one document per expert and run. All methods use the caller's transaction."""

    @abstractmethod
    def prepare(self, connection: Connection) -> None:
        """Create what all runs share, if missing."""

    @abstractmethod
    def make(self, session: Session, run_id: int) -> None:
        """Create the index of a run."""

    @abstractmethod
    def insert(self, session: Session, run_id: int, bodies: Sequence[tuple[int, str]]) -> None:
        """Insert (expert, document) pairs, at least one."""

    @abstractmethod
    def delete(self, session: Session, run_id: int) -> None:
        """Delete the documents of a run, if any."""

    @abstractmethod
    def count(self, session: Session, run_id: int) -> int:
        """Return the number of documents of a run."""

    @abstractmethod
    def compact(self, connection: Connection, run_id: int) -> None:
        """Merge the segments of a run's index."""

    @abstractmethod
    def matching_experts(self, session: Session, run_id: int, words: Sequence[str]) -> Ints:
        """Return the experts whose document has all words near each other; the last word is a prefix."""

    @abstractmethod
    def best(
        self, session: Session, run_id: int, words: Sequence[str], last: LastWord, ranked: Ranked
    ) -> tuple[int, ...]:
        """Return the best experts whose document has all words near each other, best first."""


def parse_ids(experts: str | None) -> Ints:
    """Parse comma-separated expert ids; faster than fetching one row per expert."""
    return np.fromstring(experts or "", np.int32, sep=",")
