"""Full-text search in PostgreSQL: one ``tsvector`` table for all runs, with a GIN index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, TextClause, text
from sqlalchemy.orm import Session

from mxd.trainer.storage.database.search.base import SEARCH_REACH, Ints, LastWord, Ranked, TextIndex, parse_ids
from mxd.trainer.storage.database.search.words import GAP_WORD, is_beginning, split_words

LAST_POSITION = 16_383
"""Largest position that a tsvector stores."""

_PREPARE = """
CREATE TABLE IF NOT EXISTS search_documents (
    run_id integer NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    expert integer NOT NULL,
    body tsvector NOT NULL,
    PRIMARY KEY (run_id, expert)
);
CREATE INDEX IF NOT EXISTS search_documents_by_word ON search_documents USING gin (body);
"""
_INSERT = "INSERT INTO search_documents (run_id, expert, body) VALUES (:run, :expert, CAST(:body AS tsvector))"
# The GIN index finds the documents with all words; a single word needs nothing else. Distances are then checked in
# these documents only, because the index would be searched once per pair of words and distance. OFFSET 0 keeps the
# planner from merging the two steps.
_HAVING_ALL = """
(SELECT expert, body FROM search_documents WHERE run_id = :run AND body @@ CAST(:all AS tsquery) OFFSET 0) AS having_all
"""
_HAVING_NEAR = f"{_HAVING_ALL} WHERE body @@ CAST(:near AS tsquery)"
_FOUND = "SELECT string_agg(CAST(expert AS text), ',') FROM {having}"
_BEST = """
SELECT expert FROM (SELECT expert, body FROM {having} ORDER BY expert LIMIT :candidates) AS ranked
ORDER BY ts_rank(body, CAST(:any AS tsquery)) DESC, expert LIMIT :most
"""


def tsvector(body: str) -> str:
    """Return a document as a tsvector literal."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(split_words(body)[:LAST_POSITION], start=1):
        if word != GAP_WORD:
            places.setdefault(word, []).append(place)
    return " ".join(f"'{word}':{','.join(map(str, at))}" for word, at in places.items())


def queries(words: Sequence[str], last: LastWord) -> dict[str, str] | None:
    """Return a query as three ``tsquery`` texts: ``all`` words, all ``near`` each other, ``any`` word. None if empty.

    A typed word with several parts ("don't") must match as a phrase. Distances are measured from its first and last
    part, so the result may include documents that are one or two words too far apart for FTS5.
    """
    phrases = [parts for parts in map(split_words, words) if parts]
    if not phrases:
        return None
    quoted = [[f"'{part}'" for part in parts] for parts in phrases]
    if last == "beginning" and is_beginning(words[-1]):
        quoted[-1][-1] += ":*"
    phrase_queries = [f"({' <-> '.join(parts)})" for parts in quoted]
    near = (
        phrase_queries
        if len(phrase_queries) == 1
        else [_near(quoted, phrase_queries, first) for first in range(len(phrase_queries))]
    )
    return {"all": " & ".join(phrase_queries), "near": " | ".join(near), "any": " | ".join(phrase_queries)}


def _near(quoted: Sequence[Sequence[str]], phrase_queries: Sequence[str], first: int) -> str:
    """Return a query for all words within reach after the ``first`` one.

    ``a <d> b`` matches b at distance d after a; within ``<0>``, ``&`` requires matches that start at the same place.
    """
    others = [*phrase_queries[:first], *phrase_queries[first + 1 :]]
    behind = [
        " | ".join(f"({phrase_queries[first]} <{far}> {other})" for far in range(SEARCH_REACH + 2)) for other in others
    ]
    return f"({quoted[first][0]} <0> ({' & '.join(f'({group})' for group in behind)}))"


def _sql(template: str, asked: dict[str, str]) -> TextClause:
    return text(template.format(having=_HAVING_ALL if asked["near"] == asked["all"] else _HAVING_NEAR))


class PostgresqlTextIndex(TextIndex):
    """One table for all runs."""

    def prepare(self, connection: Connection) -> None:
        """Create the table and its index."""
        connection.exec_driver_sql(_PREPARE)

    def make(self, session: Session, run_id: int) -> None:
        """Do nothing: the table exists."""

    def insert(self, session: Session, run_id: int, bodies: Sequence[tuple[int, str]]) -> None:
        """Insert documents."""
        rows = [{"run": run_id, "expert": expert, "body": tsvector(body)} for expert, body in bodies]
        session.execute(text(_INSERT), rows)

    def delete(self, session: Session, run_id: int) -> None:
        """Delete the run's rows."""
        session.execute(text("DELETE FROM search_documents WHERE run_id = :run"), {"run": run_id})

    def count(self, session: Session, run_id: int) -> int:
        """Return the number of documents of a run."""
        phrase_queries = text("SELECT count(*) FROM search_documents WHERE run_id = :run")
        return int(session.scalar(phrase_queries, {"run": run_id}) or 0)

    def compact(self, connection: Connection, run_id: int) -> None:
        """Do nothing: ``VACUUM`` includes the index."""

    def matching_experts(self, session: Session, run_id: int, words: Sequence[str]) -> Ints:
        """Return the experts whose document has all words near each other."""
        asked = queries(words, "beginning")
        # Sorted here: ordering inside string_agg would double the query time.
        return np.sort(parse_ids(session.scalar(_sql(_FOUND, asked), {"run": run_id, **asked}) if asked else None))

    def best(
        self, session: Session, run_id: int, words: Sequence[str], last: LastWord, ranked: Ranked
    ) -> tuple[int, ...]:
        """Return the best experts by ``ts_rank``, the frequency of the words."""
        asked = queries(words, last)
        if not asked:
            return ()
        bounds = {"run": run_id, "candidates": ranked.candidates, "most": ranked.most}
        return tuple(session.scalars(_sql(_BEST, asked), {**asked, **bounds}))
