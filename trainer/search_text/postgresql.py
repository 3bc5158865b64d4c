"""Full-text search in PostgreSQL: one table of ``tsvector`` for all runs, with a GIN index.

Text is cut into words here and not by PostgreSQL, whose parser knows addresses, hyphens and languages: both databases
then find the same. A word is what FTS5's ``unicode61`` takes for one: letters, digits and private characters in a row,
in small letters, without marks.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, TextClause, text
from sqlalchemy.orm import Session

from trainer.search_text.base import GAP_WORD, SEARCH_REACH, Ints, LastWord, Ranked, TextIndex, is_beginning, listed

MAX_WORD = 400
"""Letters of a word that are kept; PostgreSQL allows 2,046 bytes."""
LAST_POSITION = 16_383
"""PostgreSQL counts no further: whatever stands behind would seem to stand there."""

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
# The index answers which documents have all the words, and of one word nothing else is asked: no document is read,
# which takes most of the time. Whether several are near each other is looked up in these alone: asked of the index,
# every pair of words would be searched for once a distance. OFFSET 0 keeps the two apart, and the order of the first
# few of them from reading all documents in that order.
_HAVING_ALL = """
(SELECT expert, body FROM search_documents WHERE run_id = :run AND body @@ CAST(:all AS tsquery) OFFSET 0) AS having_all
"""
_HAVING_NEAR = f"{_HAVING_ALL} WHERE body @@ CAST(:near AS tsquery)"
_FOUND = "SELECT string_agg(CAST(expert AS text), ',') FROM {having}"
_BEST = """
SELECT expert FROM (SELECT expert, body FROM {having} ORDER BY expert LIMIT :candidates) AS ranked
ORDER BY ts_rank(body, CAST(:any AS tsquery)) DESC, expert LIMIT :most
"""


class _Letters(dict[int, str]):
    """What each character becomes; a blank where it is no part of a word."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold(chr(code))
        return folded


def _fold(letter: str) -> str:
    if "\u0300" <= letter <= "\u036f":
        return ""  # a mark over the letter before
    category = unicodedata.category(letter)
    if category == "Co":
        return letter
    if category[0] not in "LN":
        return " "
    bare = unicodedata.normalize("NFD", letter.lower())
    return "".join(part for part in bare if unicodedata.category(part) != "Mn") or " "


_LETTERS = _Letters()


def split_words(written: str) -> list[str]:
    """The words of a text, as they are searched for."""
    return [word[:MAX_WORD] for word in written.translate(_LETTERS).split()]


def tsvector(body: str) -> str:
    """A document as PostgreSQL reads it: where each word stands."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(split_words(body)[:LAST_POSITION], start=1):
        if word != GAP_WORD:
            places.setdefault(word, []).append(place)
    return " ".join(f"'{word}':{','.join(map(str, at))}" for word, at in places.items())


def queries(words: Sequence[str], last: LastWord) -> dict[str, str] | None:
    """What was typed as three ``tsquery``: ``all`` words, all ``near`` each other, ``any`` of them. None without any.

    A typed word that is several ("don't") has to stand as it is typed; among other words its place is that of its
    first part and its end that of its last, so it is near to some that for FTS5 are one or two words too far.
    """
    phrases = [parts for parts in map(split_words, words) if parts]
    if not phrases:
        return None
    quoted = [[f"'{part}'" for part in parts] for parts in phrases]
    if last == "beginning" and is_beginning(words[-1]) and split_words(words[-1]):
        quoted[-1][-1] += ":*"
    wanted = [f"({' <-> '.join(parts)})" for parts in quoted]
    near = wanted if len(wanted) == 1 else [_near(quoted, wanted, first) for first in range(len(wanted))]
    return {"all": " & ".join(wanted), "near": " | ".join(near), "any": " | ".join(wanted)}


def _near(quoted: Sequence[Sequence[str]], wanted: Sequence[str], first: int) -> str:
    """All words from the ``first`` one on, within reach.

    ``a <d> b`` says how far b is behind a; inside of ``<0>`` an "and" means matches that begin at the same place.
    """
    others = [*wanted[:first], *wanted[first + 1 :]]
    behind = [" | ".join(f"({wanted[first]} <{far}> {other})" for far in range(SEARCH_REACH + 2)) for other in others]
    return f"({quoted[first][0]} <0> ({' & '.join(f'({it})' for it in behind)}))"


def _sql(template: str, asked: dict[str, str]) -> TextClause:
    return text(template.format(having=_HAVING_ALL if asked["near"] == asked["all"] else _HAVING_NEAR))


class PostgresqlTextIndex(TextIndex):
    """One table for all runs."""

    def prepare(self, connection: Connection) -> None:
        """Make the table and its index."""
        connection.exec_driver_sql(_PREPARE)

    def make(self, session: Session, run_id: int) -> None:
        """The table is there already."""

    def insert(self, session: Session, run_id: int, bodies: Sequence[tuple[int, str]]) -> None:
        """Enter documents."""
        rows = [{"run": run_id, "expert": expert, "body": tsvector(body)} for expert, body in bodies]
        session.execute(text(_INSERT), rows)

    def delete(self, session: Session, run_id: int) -> None:
        """Delete the run's rows."""
        session.execute(text("DELETE FROM search_documents WHERE run_id = :run"), {"run": run_id})

    def count(self, session: Session, run_id: int) -> int:
        """Documents of a run."""
        wanted = text("SELECT count(*) FROM search_documents WHERE run_id = :run")
        return int(session.scalar(wanted, {"run": run_id}) or 0)

    def compact(self, connection: Connection, run_id: int) -> None:
        """Left to ``VACUUM``, which looks after the index as well."""

    def found(self, session: Session, run_id: int, words: Sequence[str]) -> Ints:
        """Experts whose document has all words near each other."""
        asked = queries(words, "beginning")
        # Put in order here: to order them as a text takes the database as long as to find them.
        return np.sort(listed(session.scalar(_sql(_FOUND, asked), {"run": run_id, **asked}) if asked else None))

    def best(
        self, session: Session, run_id: int, words: Sequence[str], last: LastWord, ranked: Ranked
    ) -> tuple[int, ...]:
        """The best by PostgreSQL's ``ts_rank``: how often the words stand in a document."""
        asked = queries(words, last)
        if not asked:
            return ()
        bounds = {"run": run_id, "candidates": ranked.candidates, "most": ranked.most}
        return tuple(session.scalars(_sql(_BEST, asked), {**asked, **bounds}))
