"""Full-text search in SQLite: one contentless FTS5 table per run, whose ``rowid`` is the expert."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from mxd.trainer.storage.database.search.base import SEARCH_REACH, Ints, LastWord, Ranked, TextIndex, parse_ids
from mxd.trainer.storage.database.search.words import is_beginning, split_words


def search_table(run_id: int) -> str:
    """Return the name of a run's table."""
    return f"search_{int(run_id)}"


def full_text_query(words: Sequence[str], last: LastWord) -> str | None:
    """Return an FTS5 query; None without a word. A typed word with several parts must match as a phrase."""
    quoted = [f'"{" ".join(parts)}"' for parts in map(split_words, words) if parts]
    if not quoted:
        return None
    if last == "beginning" and is_beginning(words[-1]):
        quoted[-1] += "*"
    return quoted[0] if len(quoted) == 1 else f"NEAR({' '.join(quoted)}, {SEARCH_REACH})"


class SqliteTextIndex(TextIndex):
    """One FTS5 table per run."""

    def prepare(self, connection: Connection) -> None:
        """Do nothing: runs share nothing."""

    def make(self, session: Session, run_id: int) -> None:
        """Create the run's table."""
        # Documents are split into words already; this tokenizer splits them only at spaces.
        columns = "body, content='', tokenize='ascii'"
        session.execute(text(f"CREATE VIRTUAL TABLE {search_table(run_id)} USING fts5({columns})"))

    def insert(self, session: Session, run_id: int, bodies: Sequence[tuple[int, str]]) -> None:
        """Insert documents."""
        rows = [{"expert": expert, "body": " ".join(split_words(body))} for expert, body in bodies]
        session.execute(text(f"INSERT INTO {search_table(run_id)} (rowid, body) VALUES (:expert, :body)"), rows)

    def delete(self, session: Session, run_id: int) -> None:
        """Drop the run's table."""
        session.execute(text(f"DROP TABLE IF EXISTS {search_table(run_id)}"))

    def count(self, session: Session, run_id: int) -> int:
        """Return the number of rows in FTS5's document-size table; 0 without a table."""
        table = f"{search_table(run_id)}_docsize"
        there = session.scalar(text("SELECT count(*) FROM sqlite_master WHERE name = :table"), {"table": table})
        return int(session.scalar(text(f"SELECT count(*) FROM {table}")) or 0) if there else 0

    def compact(self, connection: Connection, run_id: int) -> None:
        """Run FTS5's ``optimize`` command."""
        table = search_table(run_id)
        connection.execute(text(f"INSERT INTO {table} ({table}) VALUES ('optimize')"))

    def matching_experts(self, session: Session, run_id: int, words: Sequence[str]) -> Ints:
        """Return the experts whose document has all words near each other."""
        table, match = search_table(run_id), full_text_query(words, "beginning")
        query = text(f"SELECT group_concat(rowid) FROM {table} WHERE {table} MATCH :match")
        return parse_ids(session.scalar(query, {"match": match}) if match else None)

    def best(
        self, session: Session, run_id: int, words: Sequence[str], last: LastWord, ranked: Ranked
    ) -> tuple[int, ...]:
        """Return the best experts by BM25."""
        table = search_table(run_id)
        query = text(
            f"SELECT rowid FROM (SELECT rowid, bm25({table}) AS score FROM {table} WHERE {table} MATCH :match "
            f"LIMIT {ranked.candidates}) ORDER BY score, rowid LIMIT {ranked.most}"
        )
        match = full_text_query(words, last)
        return tuple(session.scalars(query, {"match": match})) if match else ()
