"""Full-text search over top examples, with one document per expert.

A document is the text around the peaks of the expert's top examples. Only the positions of its words are stored. It
belongs to one run and is deleted with the run's index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from mxd.trainer.storage.database.search.base import (
    GAP,
    SEARCH_MARGIN,
    SEARCH_REACH,
    Ints,
    LastWord,
    Ranked,
    TextIndex,
)
from mxd.trainer.storage.database.search.postgresql import PostgresqlTextIndex
from mxd.trainer.storage.database.search.sqlite import SqliteTextIndex
from mxd.trainer.storage.database.search.words import is_beginning, split_words

__all__ = [
    "DATABASES",
    "SEARCH_MARGIN",
    "SEARCH_REACH",
    "LastWord",
    "Ranked",
    "best_experts_with",
    "compact_search",
    "count_documents",
    "delete_search",
    "experts_with",
    "insert_search",
    "is_beginning",
    "make_search_table",
    "prepare_search",
    "search_body",
    "split_words",
]

_KINDS: Mapping[str, TextIndex] = {"sqlite": SqliteTextIndex(), "postgresql": PostgresqlTextIndex()}
DATABASES = tuple(_KINDS)
"""Supported databases, by SQLAlchemy's names."""


def _kind(session: Session) -> TextIndex:
    return _KINDS[session.get_bind().dialect.name]


def search_body(windows: Iterable[str]) -> str:
    """Join the texts around an expert's peaks to its document."""
    return GAP.join(windows)


def prepare_search(connection: Connection) -> None:
    """Create the tables shared by all runs, if missing."""
    _KINDS[connection.dialect.name].prepare(connection)


def make_search_table(session: Session, run_id: int) -> None:
    """Create the table for a run's documents, in the caller's transaction."""
    _kind(session).make(session, run_id)


def insert_search(session: Session, run_id: int, bodies: Iterable[tuple[int, str]]) -> None:
    """Insert (expert, document) pairs."""
    rows = list(bodies)
    if rows:
        _kind(session).insert(session, run_id, rows)


def delete_search(session: Session, run_id: int) -> None:
    """Delete a run's documents, in the caller's transaction."""
    _kind(session).delete(session, run_id)


def count_documents(session: Session, run_id: int) -> int:
    """Return the number of documents of a run."""
    return _kind(session).count(session, run_id)


def compact_search(connection: Connection, run_id: int) -> None:
    """Merge the segments of a run's full-text index."""
    _KINDS[connection.dialect.name].compact(connection, run_id)


def experts_with(session: Session, run_id: int, words: Sequence[str]) -> Ints:
    """Return the experts whose document has all ``words`` within ``SEARCH_REACH``; the last word is a prefix."""
    return _kind(session).matching_experts(session, run_id, words)


def best_experts_with(
    session: Session, run_id: int, words: Sequence[str], last: LastWord, ranked: Ranked
) -> tuple[int, ...]:
    """Return the best matching experts, best first. ``last`` says whether the last word is a prefix."""
    return _kind(session).best(session, run_id, words, last, ranked)
