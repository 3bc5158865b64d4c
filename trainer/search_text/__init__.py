"""What can be searched of a run's contexts: a document an expert, kept by the full-text search of the store's database.

A document is the text around the peaks of the expert's largest contexts. What is kept is not the text, only where each
word stands. It belongs to one run and goes with its index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from trainer.search_text.base import GAP, SEARCH_MARGIN, SEARCH_REACH, Ints, LastWord, Ranked, TextIndex, is_beginning
from trainer.search_text.postgresql import PostgresqlTextIndex
from trainer.search_text.sqlite import SqliteTextIndex

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
]

_KINDS: Mapping[str, TextIndex] = {"sqlite": SqliteTextIndex(), "postgresql": PostgresqlTextIndex()}
DATABASES = tuple(_KINDS)
"""Those that a store can be in, as SQLAlchemy names them."""


def _kind(session: Session) -> TextIndex:
    return _KINDS[session.get_bind().dialect.name]


def search_body(windows: Iterable[str]) -> str:
    """The document of an expert, of the texts around its peaks."""
    return GAP.join(windows)


def prepare_search(connection: Connection) -> None:
    """Make what all runs of a store share, where it is missing."""
    _KINDS[connection.dialect.name].prepare(connection)


def make_search_table(session: Session, run_id: int) -> None:
    """Get ready for the documents of a run whose index has none, in the caller's transaction."""
    _kind(session).make(session, run_id)


def insert_search(session: Session, run_id: int, bodies: Iterable[tuple[int, str]]) -> None:
    """Enter (expert, document) pairs."""
    rows = list(bodies)
    if rows:
        _kind(session).insert(session, run_id, rows)


def delete_search(session: Session, run_id: int) -> None:
    """Delete a run's documents, in the caller's transaction."""
    _kind(session).delete(session, run_id)


def count_documents(session: Session, run_id: int) -> int:
    """How many experts of a run have a document."""
    return _kind(session).count(session, run_id)


def compact_search(connection: Connection, run_id: int) -> None:
    """Join the pieces that a run's words were written in."""
    _KINDS[connection.dialect.name].compact(connection, run_id)


def experts_with(session: Session, run_id: int, words: Sequence[str]) -> Ints:
    """Experts in whose document all ``words`` stand at most ``SEARCH_REACH`` words apart, the last as a beginning."""
    return _kind(session).found(session, run_id, words)


def best_experts_with(
    session: Session, run_id: int, words: Sequence[str], last: LastWord, ranked: Ranked
) -> tuple[int, ...]:
    """Those in whose document the words weigh most, best first; the last word as it stands, or as a beginning."""
    return _kind(session).best(session, run_id, words, last, ranked)
