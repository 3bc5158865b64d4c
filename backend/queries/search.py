"""Finding experts by words: in labels, among the tokens they are active on, in the text of their largest contexts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sqlalchemy import Row, select, text
from sqlalchemy.orm import Session

from backend.notes import labels_like, labels_of
from backend.queries.automatic import automatic_like, shown_labels
from backend.queries.contexts import describe, largest_context
from backend.schemas import Context, SearchHit
from backend.vocabulary import Vocabulary, fold
from trainer.indexing.write import SEARCH_MARGIN
from trainer.packing import TOKEN_IDS
from trainer.search_text import SEARCH_REACH, search_table
from trainer.store import ContextRecord, ExpertRecord, RunRecord

MAX_WORDS = 16
CANDIDATES = 2_000
"""Matching experts that are ranked: those of a word that is nearly everywhere say little, however they are ordered."""

SEARCHES_HELD = 32

SearchText = Annotated[str, Field(min_length=1, max_length=200)]
Ints = NDArray[np.int32]
Matched = Literal["label", "token", "context"]


@dataclass(frozen=True)
class SearchIndex:
    """What searching a run's index needs beside the store: who is active on a token."""

    token: Ints
    """Of every (token, expert) pair, sorted by token."""
    expert: Ints
    share: NDArray[np.float32]
    """Of the expert's active tokens."""

    @cached_property
    def found_in_contexts(self) -> OrderedDict[str, Ints]:
        """Experts whose contexts fit what was searched for last: every page of a list asks for the same again."""
        return OrderedDict()

    def users(self, tokens: Collection[int]) -> Ints:
        """Experts whose most frequent tokens include one of ``tokens``; some more than once."""
        return self.expert[self._places(tokens)]

    def strongest_users(self, tokens: Collection[int], count: int) -> list[int]:
        """The first ``count`` of them by the largest share that one of ``tokens`` has, each once."""
        places = self._places(tokens)
        share = self.share[places]
        enough = count * len(tokens)  # an expert has one place a token at most
        if 0 < enough < len(share):
            places = places[share >= np.partition(share, -enough)[-enough]]
        order = places[np.lexsort((self.expert[places], -self.share[places]))]
        return list(dict.fromkeys(self.expert[order].tolist()))[:count]

    def _places(self, tokens: Collection[int]) -> NDArray[np.int64]:
        wanted = np.fromiter(tokens, np.int64, len(tokens))
        starts, ends = np.searchsorted(self.token, wanted), np.searchsorted(self.token, wanted + 1)
        ranges = [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
        return np.concatenate([np.zeros(0, np.int64), *ranges])


def build_search_index(session: Session, run_id: int) -> SearchIndex:
    """Read who is active on which token."""
    wanted = select(ExpertRecord.expert, ExpertRecord.active_tokens, ExpertRecord.top_tokens)
    triples = [
        (token, expert, count / active)
        for expert, active, top_tokens in session.execute(wanted.where(ExpertRecord.run_id == run_id))
        for token, count in top_tokens
    ]
    columns = np.array(triples, dtype=np.float64).reshape(-1, 3)
    columns = columns[np.argsort(columns[:, 0], kind="stable")]
    return SearchIndex(
        token=columns[:, 0].astype(np.int32),
        expert=columns[:, 1].astype(np.int32),
        share=columns[:, 2].astype(np.float32),
    )


def words_of(typed: str) -> list[str]:
    """The words that a person typed, without those that have neither letter nor digit."""
    words = typed.replace("\0", " ").split()
    return [word for word in words if any(letter.isalnum() for letter in word)][:MAX_WORDS]


def full_text_query(typed: str) -> str | None:
    """What a person typed in FTS5's language: all words near each other, the last as a beginning.

    Every word is quoted, so nothing in it is taken for an operator. None where no word is left.
    """
    words = words_of(typed)
    if not words:
        return None
    quoted = [f'"{word.replace(chr(34), chr(34) * 2)}"' for word in words]
    if len(words[-1]) > 1:
        quoted[-1] += "*"
    return quoted[0] if len(quoted) == 1 else f"NEAR({' '.join(quoted)}, {SEARCH_REACH})"


def find_experts(session: Session, run: RunRecord, typed: str, vocabulary: Vocabulary, index: SearchIndex) -> Ints:
    """Experts that ``typed`` is found in: their label, their most frequent tokens, or a context; some twice."""
    labelled: list[int] = []
    if typed.strip():
        labelled += (expert for expert, _ in labels_like(session, run.name, typed.strip()))
        labelled += automatic_like(session, run, typed.strip())
    users = index.users(vocabulary.matching(typed))
    return np.concatenate([np.array(labelled, np.int32), users, _in_contexts(session, run, typed, index)])


def _in_contexts(session: Session, run: RunRecord, typed: str, index: SearchIndex) -> Ints:
    match = full_text_query(typed)
    if match is None or not has_full_text(session):
        return np.zeros(0, np.int32)
    held = index.found_in_contexts
    found = held.get(match)
    if found is None:
        found = held[match] = _read_from_contexts(session, run, match)
        while len(held) > SEARCHES_HELD:
            held.popitem(last=False)
    return found


def _read_from_contexts(session: Session, run: RunRecord, match: str) -> Ints:
    table = search_table(run.id)
    # One text instead of a row each: a common word is in the contexts of every expert.
    wanted = text(f"SELECT group_concat(rowid) FROM {table} WHERE {table} MATCH :match")
    found = session.scalar(wanted, {"match": match})
    return np.array(found.split(",") if found else [], np.int32)


def best_experts(session: Session, run: RunRecord, typed: str, count: int) -> list[int]:
    """The experts whose contexts fit ``typed`` best, best first."""
    match = full_text_query(typed)
    if match is None or not has_full_text(session):
        return []
    table = search_table(run.id)
    wanted = text(
        f"SELECT rowid FROM (SELECT rowid, bm25({table}) AS score FROM {table} WHERE {table} MATCH :match "
        f"LIMIT {CANDIDATES}) ORDER BY score, rowid LIMIT :count"
    )
    return list(session.scalars(wanted, {"match": match, "count": count}))


def best_contexts(
    session: Session, run: RunRecord, typed: str, experts: Sequence[int], vocabulary: Vocabulary
) -> dict[int, Context]:
    """Of each expert the context that shows ``typed``: the largest one with all its words around the peak."""
    words = [fold(word) for word in words_of(typed)]

    def fits(row: Row[ContextRecord, bytes]) -> bool:
        around = _around(row, vocabulary)
        return all(word in around for word in words)

    found = {expert: largest_context(session, run, expert, fits) for expert in experts}
    return {expert: describe(row, vocabulary) for expert, row in found.items() if row is not None}


def _around(row: Row[ContextRecord, bytes], vocabulary: Vocabulary) -> str:
    record, packed = row
    start = max(0, record.position - SEARCH_MARGIN)
    window = np.frombuffer(packed, TOKEN_IDS)[start : record.position + SEARCH_MARGIN + 1]
    return "".join(vocabulary.name(token) for token in window.tolist()).casefold()


def has_full_text(session: Session) -> bool:
    """Whether the store keeps the text of contexts for searching; only SQLite does."""
    return session.get_bind().dialect.name == "sqlite"


def search(
    session: Session, run: RunRecord, typed: str, limit: int, vocabulary: Vocabulary, index: SearchIndex
) -> tuple[SearchHit, ...]:
    """The experts that fit ``typed`` best, each once: by label, then by token, then by context."""
    hits: dict[int, SearchHit] = {}
    labelled = labels_like(session, run.name, typed.strip())
    for expert, _ in labelled[:limit]:
        hits[expert] = _hit(expert, "label")
    named = automatic_like(session, run, typed.strip()) if typed.strip() else []
    for expert in named[: max(limit - len(hits), 0) // 3]:
        hits.setdefault(expert, _hit(expert, "label"))
    # Some room is kept for contexts, so that a common token does not hide them.
    for expert in index.strongest_users(vocabulary.matching(typed), max(limit - len(hits), 0) * 2 // 3):
        hits.setdefault(expert, _hit(expert, "token"))
    best = [expert for expert in best_experts(session, run, typed, limit) if expert not in hits][: limit - len(hits)]
    contexts = best_contexts(session, run, typed, best, vocabulary)
    for expert in best:
        hits[expert] = _hit(expert, "context", contexts.get(expert))
    return _labelled(session, run, list(hits.values())[:limit])


def _hit(expert: int, matched: Matched, context: Context | None = None) -> SearchHit:
    """A hit whose labels are looked up with all others'."""
    return SearchHit(expert=expert, label=None, automatic=None, matched=matched, context=context)


def _labelled(session: Session, run: RunRecord, hits: Sequence[SearchHit]) -> tuple[SearchHit, ...]:
    experts = [hit.expert for hit in hits]
    labels, automatic = labels_of(session, run.name, experts), shown_labels(session, run, experts)
    return tuple(
        hit.model_copy(update={"label": labels.get(hit.expert), "automatic": automatic.get(hit.expert)}) for hit in hits
    )
