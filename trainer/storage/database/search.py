"""Full-text search over top examples, with one document per expert, in SQLite and in PostgreSQL.

A document is the text around the peaks of the expert's top examples. Only the positions of its words are stored. It
belongs to one run and is deleted with the run's index. SQLite has one contentless FTS5 table per run, whose ``rowid``
is the expert. PostgreSQL has one ``tsvector`` table for all runs, with a GIN index.

A word is a run of letters, digits and marks, without case and diacritics, the same in both databases. In scripts that
are written without spaces, such as Chinese, Japanese, Thai and Khmer, each character is a word, so that a phrase of
characters is found anywhere. A symbol, an emoji and a punctuation mark are words of their own.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, TextClause, text
from sqlalchemy.orm import Session

DATABASES = ("sqlite", "postgresql")
"""Supported databases, by SQLAlchemy's names."""
MAX_WORD = 400
"""Maximum characters of a word; PostgreSQL allows 2,046 bytes."""
GAP_WORD = "\ue000"
"""A private-use character between the texts of a document."""
SYMBOL = "\ue001"
"""Precedes the code of a symbol, because databases take symbols for separators or operators."""
SEARCH_MARGIN = 12
"""Number of searchable tokens on either side of a peak."""
SEARCH_REACH = 10
"""Maximum distance between the words of a query."""
LAST_POSITION = 16_383

LastWord = Literal["whole", "beginning"]
"""Kind of match of the last word: complete, or as a prefix."""
Ints = NDArray[np.int32]


def search_body(windows: Iterable[str]) -> str:
    """Join the texts around an expert's peaks to its document, apart by more than ``SEARCH_REACH`` words."""
    return (f" {GAP_WORD}" * (SEARCH_REACH + 1) + " ").join(windows)


def search_table(run_id: int) -> str:
    return f"search_{int(run_id)}"


def _is_postgresql(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"


# ---------------------------------------------------------------- documents

_POSTGRESQL_TABLE = """
CREATE TABLE IF NOT EXISTS search_documents (
    run_id integer NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    expert integer NOT NULL,
    body tsvector NOT NULL,
    PRIMARY KEY (run_id, expert)
);
CREATE INDEX IF NOT EXISTS search_documents_by_word ON search_documents USING gin (body);
"""


def prepare_search(connection: Connection) -> None:
    """Create the table shared by all runs, if the database has one and it is missing."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_POSTGRESQL_TABLE)


def make_search_table(session: Session, run_id: int) -> None:
    """Create the table for a run's documents, in the caller's transaction."""
    if not _is_postgresql(session):
        # Documents are split into words already; this tokenizer splits them only at spaces.
        columns = "body, content='', tokenize='ascii'"
        session.execute(text(f"CREATE VIRTUAL TABLE {search_table(run_id)} USING fts5({columns})"))


def insert_search(session: Session, run_id: int, bodies: Iterable[tuple[int, str]]) -> None:
    if _is_postgresql(session):
        query = "INSERT INTO search_documents (run_id, expert, body) VALUES (:run, :expert, CAST(:body AS tsvector))"
        rows = [{"run": run_id, "expert": expert, "body": _tsvector(body)} for expert, body in bodies]
    else:
        query = f"INSERT INTO {search_table(run_id)} (rowid, body) VALUES (:expert, :body)"
        rows = [{"expert": expert, "body": " ".join(split_words(body))} for expert, body in bodies]
    if rows:
        session.execute(text(query), rows)


def _tsvector(body: str) -> str:
    places: dict[str, list[int]] = {}
    for place, word in enumerate(split_words(body)[:LAST_POSITION], start=1):
        if word != GAP_WORD:
            places.setdefault(word, []).append(place)
    return " ".join(f"'{word}':{','.join(map(str, at))}" for word, at in places.items())


def delete_search(session: Session, run_id: int) -> None:
    """Delete a run's documents, if any, in the caller's transaction."""
    if _is_postgresql(session):
        session.execute(text("DELETE FROM search_documents WHERE run_id = :run"), {"run": run_id})
    else:
        session.execute(text(f"DROP TABLE IF EXISTS {search_table(run_id)}"))


def count_documents(session: Session, run_id: int) -> int:
    if _is_postgresql(session):
        query = text("SELECT count(*) FROM search_documents WHERE run_id = :run")
        return int(session.scalar(query, {"run": run_id}) or 0)
    table = f"{search_table(run_id)}_docsize"
    there = session.scalar(text("SELECT count(*) FROM sqlite_master WHERE name = :table"), {"table": table})
    return int(session.scalar(text(f"SELECT count(*) FROM {table}")) or 0) if there else 0


def compact_search(connection: Connection, run_id: int) -> None:
    """Merge the segments of a run's full-text index; PostgreSQL's ``VACUUM`` does it."""
    if connection.dialect.name != "postgresql":
        table = search_table(run_id)
        connection.execute(text(f"INSERT INTO {table} ({table}) VALUES ('optimize')"))


# ---------------------------------------------------------------- queries


def experts_with(session: Session, run_id: int, words: Sequence[str]) -> Ints:
    """Return the experts whose document has all ``words`` within ``SEARCH_REACH``; the last word is a prefix."""
    # Comma-separated ids are parsed faster than one row per expert is fetched.
    if _is_postgresql(session):
        asked = _tsqueries(words, "beginning")
        query = "SELECT string_agg(CAST(expert AS text), ',') FROM {having}"
        found = session.scalar(_having(query, asked), {"run": run_id, **asked}) if asked else None
        # Sorted here: ordering inside string_agg would double the query time.
        return np.sort(np.fromstring(found or "", np.int32, sep=","))
    table, match = search_table(run_id), full_text_query(words, "beginning")
    statement = text(f"SELECT group_concat(rowid) FROM {table} WHERE {table} MATCH :match")
    return np.fromstring((session.scalar(statement, {"match": match}) if match else None) or "", np.int32, sep=",")


def best_experts_with(
    session: Session, run_id: int, words: Sequence[str], last: LastWord, candidates: int, most: int
) -> tuple[int, ...]:
    """Return the best matching experts, best first: by BM25 in SQLite, by the frequency of the words in PostgreSQL.
    ``last`` says whether the last word is a prefix. The first ``candidates`` matches, by expert id, are ranked, and at
    most ``most`` are returned."""
    if _is_postgresql(session):
        asked = _tsqueries(words, last)
        query = (
            "SELECT expert FROM (SELECT expert, body FROM {having} ORDER BY expert LIMIT :candidates) AS ranked "
            "ORDER BY ts_rank(body, CAST(:any AS tsquery)) DESC, expert LIMIT :most"
        )
        bounds = {"run": run_id, "candidates": candidates, "most": most}
        return tuple(session.scalars(_having(query, asked), {**asked, **bounds})) if asked else ()
    table, match = search_table(run_id), full_text_query(words, last)
    statement = text(
        f"SELECT rowid FROM (SELECT rowid, bm25({table}) AS score FROM {table} WHERE {table} MATCH :match "
        f"LIMIT {candidates}) ORDER BY score, rowid LIMIT {most}"
    )
    return tuple(session.scalars(statement, {"match": match})) if match else ()


def full_text_query(words: Sequence[str], last: LastWord) -> str | None:
    """Return an FTS5 query; None without a word. A typed word with several parts must match as a phrase."""
    quoted = [f'"{" ".join(parts)}"' for parts in map(split_words, words) if parts]
    if not quoted:
        return None
    if last == "beginning" and is_beginning(words[-1]):
        quoted[-1] += "*"
    return quoted[0] if len(quoted) == 1 else f"NEAR({' '.join(quoted)}, {SEARCH_REACH})"


def _tsqueries(words: Sequence[str], last: LastWord) -> dict[str, str] | None:
    """A query as three ``tsquery`` texts: ``all`` words, all ``near`` each other, ``any`` word. None if empty. A typed
    word with several parts ("don't") must match as a phrase. Distances are measured from its first and last part, so
    the result may include documents that are one or two words too far apart for FTS5."""
    quoted = [[f"'{part}'" for part in parts] for parts in map(split_words, words) if parts]
    if not quoted:
        return None
    if last == "beginning" and is_beginning(words[-1]):
        quoted[-1][-1] += ":*"
    phrases = [f"({' <-> '.join(parts)})" for parts in quoted]
    near = phrases if len(phrases) == 1 else [_near(quoted, phrases, first) for first in range(len(phrases))]
    return {"all": " & ".join(phrases), "near": " | ".join(near), "any": " | ".join(phrases)}


def _near(quoted: Sequence[Sequence[str]], phrases: Sequence[str], first: int) -> str:
    """A query for all words within reach after the ``first`` one. ``a <d> b`` matches b at distance d after a; within
    ``<0>``, ``&`` requires matches that start at the same place."""
    others = [*phrases[:first], *phrases[first + 1 :]]
    behind = [" | ".join(f"({phrases[first]} <{far}> {other})" for far in range(SEARCH_REACH + 2)) for other in others]
    return f"({quoted[first][0]} <0> ({' & '.join(f'({group})' for group in behind)}))"


def _having(query: str, asked: dict[str, str] | None) -> TextClause:
    """A query of the documents that have what is asked. The GIN index finds the documents with all words; a single word
    needs nothing else. Distances are then checked in these documents only, because the index would be searched once per
    pair of words and distance. OFFSET 0 keeps the planner from merging the two steps."""
    having = (
        "(SELECT expert, body FROM search_documents WHERE run_id = :run AND body @@ CAST(:all AS tsquery) OFFSET 0) "
        "AS having_all"
    )
    if asked and asked["near"] != asked["all"]:
        having += " WHERE body @@ CAST(:near AS tsquery)"
    return text(query.format(having=having))


# ---------------------------------------------------------------- words

_UNSPACED = (
    *((0x0E00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19FF), (0x1A20, 0x1AAF), (0x1B00, 0x1B7F)),
    *((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3031, 0x312F), (0x31A0, 0x31FF), (0x3400, 0x4DBF)),
    *((0x4E00, 0xA4CF), (0xA980, 0xA9FF), (0xAA60, 0xAADF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x16FE0, 0x18DFF)),
    *((0x1AFF0, 0x1B2FF), (0x20000, 0x3FFFF)),
)
"""Blocks of the scripts without spaces: Thai, Lao, Tibetan, Myanmar, Khmer, Tai, Balinese; Han, kana, Bopomofo, Yi;
Javanese, Tai Viet; compatibility forms; Tangut, kana; Han extensions."""
_DIACRITICS = (
    *((0x0300, 0x036F), (0x0591, 0x05BD), (0x05BF, 0x05C7), (0x0610, 0x061A), (0x064B, 0x065F), (0x0670, 0x0670)),
    *((0x06D6, 0x06ED), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF)),
)
"""Marks that searches ignore: of Latin, Greek and Cyrillic, Hebrew and Arabic vowels, and variation selectors."""


class _Letters(dict[int, str]):
    """Translation table: each character's folded form, with spaces where words end."""

    def __missing__(self, code: int) -> str:
        letter = bare = chr(code)
        if letter != GAP_WORD:
            decomposed = unicodedata.normalize("NFKD", letter.casefold())
            bare = unicodedata.normalize("NFC", "".join(part for part in decomposed if not _is_in(part, _DIACRITICS)))
            bare = "".join(map(_as_word, bare))
        self[code] = bare
        return bare


def _as_word(letter: str) -> str:
    category = unicodedata.category(letter)
    if category[0] in "PS" or category in ("Co", "Cn"):
        return f" {SYMBOL}{ord(letter):x} "
    if category == "Cf" and letter != "\N{ZERO WIDTH SPACE}":
        return ""
    if category[0] not in "LMN":
        return " "
    return f" {letter} " if _is_in(letter, _UNSPACED) else letter


def _is_in(letter: str, blocks: tuple[tuple[int, int], ...]) -> bool:
    place = bisect_right(blocks, (ord(letter), 0x110000)) - 1
    return place >= 0 and ord(letter) <= blocks[place][1]


_LETTERS = _Letters()


def split_words(written: str) -> list[str]:
    # First as a whole, because letters may be typed in parts: Hangul in jamo, kana with a voiced mark.
    return [word[:MAX_WORD] for word in unicodedata.normalize("NFKC", written).translate(_LETTERS).split()]


def is_beginning(word: str) -> bool:
    """Return whether a last typed word is used as a prefix. A single letter matches too much; a symbol is complete."""
    parts = split_words(word)
    return len(word) > 1 and bool(parts) and not parts[-1].startswith(SYMBOL)
