"""Full-text search in SQLite: a table of FTS5 a run, without the text itself; its ``rowid`` is the expert."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from trainer.search_text.base import SEARCH_REACH, Ints, LastWord, Ranked, TextIndex, is_beginning, listed


def search_table(run_id: int) -> str:
    """Name of a run's table."""
    return f"search_{int(run_id)}"


def full_text_query(words: Sequence[str], last: LastWord) -> str:
    """Words, at least one, in FTS5's language. Each is quoted, so nothing in it is taken for an operator."""
    quoted = [f'"{word.replace(chr(34), chr(34) * 2)}"' for word in words]
    if last == "beginning" and is_beginning(words[-1]):
        quoted[-1] += "*"
    return quoted[0] if len(quoted) == 1 else f"NEAR({' '.join(quoted)}, {SEARCH_REACH})"


class SqliteTextIndex(TextIndex):
    """A table of FTS5 a run."""

    def prepare(self, connection: Connection) -> None:
        """Runs share nothing."""

    def make(self, session: Session, run_id: int) -> None:
        """Make the run's table."""
        columns = "body, content='', tokenize='unicode61'"
        session.execute(text(f"CREATE VIRTUAL TABLE {search_table(run_id)} USING fts5({columns})"))

    def insert(self, session: Session, run_id: int, bodies: Sequence[tuple[int, str]]) -> None:
        """Enter documents."""
        rows = [{"expert": expert, "body": body} for expert, body in bodies]
        session.execute(text(f"INSERT INTO {search_table(run_id)} (rowid, body) VALUES (:expert, :body)"), rows)

    def delete(self, session: Session, run_id: int) -> None:
        """Drop the run's table."""
        session.execute(text(f"DROP TABLE IF EXISTS {search_table(run_id)}"))

    def count(self, session: Session, run_id: int) -> int:
        """Documents, by the table of their lengths; none where there is no table."""
        table = f"{search_table(run_id)}_docsize"
        there = session.scalar(text("SELECT count(*) FROM sqlite_master WHERE name = :table"), {"table": table})
        return int(session.scalar(text(f"SELECT count(*) FROM {table}")) or 0) if there else 0

    def compact(self, connection: Connection, run_id: int) -> None:
        """FTS5's own command."""
        table = search_table(run_id)
        connection.execute(text(f"INSERT INTO {table} ({table}) VALUES ('optimize')"))

    def found(self, session: Session, run_id: int, words: Sequence[str]) -> Ints:
        """Experts whose document has all words near each other."""
        table = search_table(run_id)
        wanted = text(f"SELECT group_concat(rowid) FROM {table} WHERE {table} MATCH :match")
        return listed(session.scalar(wanted, {"match": full_text_query(words, "beginning")}))

    def best(
        self, session: Session, run_id: int, words: Sequence[str], last: LastWord, ranked: Ranked
    ) -> tuple[int, ...]:
        """The best by BM25."""
        table = search_table(run_id)
        wanted = text(
            f"SELECT rowid FROM (SELECT rowid, bm25({table}) AS score FROM {table} WHERE {table} MATCH :match "
            f"LIMIT {ranked.candidates}) ORDER BY score, rowid LIMIT {ranked.most}"
        )
        return tuple(session.scalars(wanted, {"match": full_text_query(words, last)}))
