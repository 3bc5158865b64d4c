"""What can be searched of a run's contexts: a table of SQLite's FTS5, a document an expert.

A document is the text around the peaks of the expert's largest contexts. The table keeps no text of its own, only where
each word stands; it belongs to one run and goes with its index.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import text
from sqlalchemy.orm import Session

SEARCH_REACH = 10
"""Words that are searched for together stand at most this far apart."""
_GAP = " \ue000" * (SEARCH_REACH + 1) + " "
"""Keeps the end of one context from the beginning of the next; a private character is a word to SQLite."""


def search_table(run_id: int) -> str:
    """Name of a run's table; its ``rowid`` is the expert."""
    return f"search_{int(run_id)}"


def search_body(windows: Iterable[str]) -> str:
    """The document of an expert in the search table, of the texts around its peaks."""
    return _GAP.join(windows)


def make_search_table(session: Session, run_id: int) -> None:
    """Make an empty search table for a run whose index has none, in the caller's transaction; SQLite only."""
    columns = "body, content='', tokenize='unicode61'"
    session.execute(text(f"CREATE VIRTUAL TABLE {search_table(run_id)} USING fts5({columns})"))


def insert_search(session: Session, run_id: int, bodies: Iterable[tuple[int, str]]) -> None:
    """Enter (expert, document) pairs into the run's search table."""
    rows = [{"expert": expert, "body": body} for expert, body in bodies]
    if rows:
        session.execute(text(f"INSERT INTO {search_table(run_id)} (rowid, body) VALUES (:expert, :body)"), rows)
