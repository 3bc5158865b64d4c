"""Finding experts by words: in labels, among the tokens they are active on, in the text of their largest contexts."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sqlalchemy import ColumnElement, func, select, text
from sqlalchemy.orm import InstrumentedAttribute, Session

from backend.notes import labels_like, labels_of
from backend.queries.contexts import contexts_by_id
from backend.schemas import SearchHit
from backend.vocabulary import Vocabulary
from trainer.store import SEARCH_TABLE, ContextRecord, ExpertRecord, IndexRecord, RunRecord

MAX_WORDS = 16
CANDIDATES = 5_000
"""Matching contexts that are ranked: those of a word that is nearly everywhere say little, however they are ordered."""
RUNS_HELD = 8

SearchText = Annotated[str, Field(min_length=1, max_length=200)]
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class SearchIndex:
    """What searching a run's index needs beside the store: who is active on a token, and which contexts are its own."""

    token: Ints
    """Of every (token, expert) pair, sorted by token."""
    expert: Ints
    share: NDArray[np.float32]
    """Of the expert's active tokens."""
    first_context: int
    last_context: int

    def users(self, tokens: Iterable[int]) -> dict[int, float]:
        """Experts whose most frequent tokens include one of ``tokens``, with the largest of the shares."""
        found: dict[int, float] = {}
        for token in tokens:
            start, end = np.searchsorted(self.token, [token, token + 1])
            for expert, share in zip(self.expert[start:end].tolist(), self.share[start:end].tolist(), strict=True):
                found[expert] = max(share, found.get(expert, 0.0))
        return found


class SearchIndexes:
    """Search indexes of the runs last searched; made when first needed, and again after a run is indexed again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: OrderedDict[int, tuple[datetime, SearchIndex]] = OrderedDict()

    def of(self, session: Session, index: IndexRecord) -> SearchIndex:
        """The search index that belongs to ``index``."""
        with self._lock:
            held = self._held.pop(index.run_id, None)
            fresh = held is not None and held[0] == index.created_at
            found = held[1] if held is not None and fresh else _build(session, index.run_id)
            self._held[index.run_id] = (index.created_at, found)
            while len(self._held) > RUNS_HELD:
                self._held.popitem(last=False)
            return found


def _build(session: Session, run_id: int) -> SearchIndex:
    wanted = select(ExpertRecord.expert, ExpertRecord.active_tokens, ExpertRecord.top_tokens)
    triples = [
        (token, expert, count / active)
        for expert, active, top_tokens in session.execute(wanted.where(ExpertRecord.run_id == run_id))
        for token, count in top_tokens
    ]
    columns = np.array(triples, dtype=np.float64).reshape(-1, 3)
    columns = columns[np.argsort(columns[:, 0], kind="stable")]
    ends = select(func.min(ContextRecord.id), func.max(ContextRecord.id)).where(ContextRecord.run_id == run_id)
    first, last = session.execute(ends).one()
    return SearchIndex(
        token=columns[:, 0].astype(np.int32),
        expert=columns[:, 1].astype(np.int32),
        share=columns[:, 2].astype(np.float32),
        first_context=first or 0,
        last_context=last or 0,
    )


def full_text_query(typed: str) -> str | None:
    """What a person typed in FTS5's language: all words, the last as a beginning, the whole phrase ranked first.

    Every word is quoted, so nothing in it is taken for an operator. None where no word is left.
    """
    words = [word.replace('"', '""') for word in typed.replace("\0", " ").split()]
    words = [word for word in words if any(letter.isalnum() for letter in word)][:MAX_WORDS]
    if not words:
        return None
    every = " AND ".join(f'"{word}"' for word in words) + "*"
    return every if len(words) == 1 else f'"{" ".join(words)}" OR ({every})'


def find_experts(session: Session, run: RunRecord, typed: str, vocabulary: Vocabulary, index: SearchIndex) -> set[int]:
    """Experts that ``typed`` is found in: their label, their most frequent tokens, or a context of theirs."""
    found = {expert for expert, _ in labels_like(session, run.name, typed.strip())} if typed.strip() else set()
    found.update(index.users(vocabulary.matching(typed)))
    found.update(_in_contexts(session, typed, index))
    return found


def _in_contexts(session: Session, typed: str, index: SearchIndex) -> Iterable[int]:
    match = full_text_query(typed)
    if match is None or not has_full_text(session):
        return []
    wanted = text(
        f"SELECT DISTINCT contexts.expert FROM {SEARCH_TABLE} JOIN contexts ON contexts.id = {SEARCH_TABLE}.rowid "
        f"WHERE {SEARCH_TABLE} MATCH :match AND {SEARCH_TABLE}.rowid BETWEEN :first AND :last"
    )
    return session.scalars(wanted, {"match": match, "first": index.first_context, "last": index.last_context})


def best_contexts(session: Session, typed: str, index: SearchIndex, count: int) -> list[int]:
    """Ids of the contexts that fit ``typed`` best, at most one an expert, best first."""
    match = full_text_query(typed)
    if match is None or not has_full_text(session):
        return []
    wanted = text(
        f"WITH found AS (SELECT rowid AS id, bm25({SEARCH_TABLE}) AS score FROM {SEARCH_TABLE} "
        f"WHERE {SEARCH_TABLE} MATCH :match AND rowid BETWEEN :first AND :last LIMIT {CANDIDATES}) "
        "SELECT contexts.id, min(score) AS best FROM found JOIN contexts ON contexts.id = found.id "
        "GROUP BY contexts.expert ORDER BY best, contexts.id LIMIT :count"
    )
    parameters = {"match": match, "first": index.first_context, "last": index.last_context, "count": count}
    return [int(row[0]) for row in session.execute(wanted, parameters)]


def has_full_text(session: Session) -> bool:
    """Whether the store keeps the text of contexts for searching; only SQLite does."""
    return session.get_bind().dialect.name == "sqlite"


def among(session: Session, column: InstrumentedAttribute[int], values: Collection[int]) -> ColumnElement[bool]:
    """``column IN values``, for any number of values."""
    if session.get_bind().dialect.name != "sqlite":
        return column.in_(list(values))
    # SQLite allows some thousand parameters in a statement; a JSON list is one.
    listed = func.json_each(json.dumps(sorted(values))).table_valued("value")
    return column.in_(select(listed.c.value))


def search(
    session: Session, run: RunRecord, typed: str, limit: int, vocabulary: Vocabulary, index: SearchIndex
) -> tuple[SearchHit, ...]:
    """The experts that fit ``typed`` best, each once: by label, then by token, then by context."""
    hits: dict[int, SearchHit] = {}
    labelled = labels_like(session, run.name, typed.strip())
    for expert, label in labelled[:limit]:
        hits[expert] = SearchHit(expert=expert, label=label, matched="label", context=None)
    users = index.users(vocabulary.matching(typed))
    by_share = sorted(users, key=lambda expert: (-users[expert], expert))
    # Some room is kept for contexts, so that a common token does not hide them.
    for expert in by_share[: max(limit - len(hits), 0) * 2 // 3]:
        hits.setdefault(expert, SearchHit(expert=expert, label=None, matched="token", context=None))
    ids = best_contexts(session, typed, index, limit)
    contexts = contexts_by_id(session, ids, vocabulary)
    for expert, context in (contexts[number] for number in ids):
        hits.setdefault(expert, SearchHit(expert=expert, label=None, matched="context", context=context))
    return _labelled(session, run, list(hits.values())[:limit])


def _labelled(session: Session, run: RunRecord, hits: Sequence[SearchHit]) -> tuple[SearchHit, ...]:
    labels = labels_of(session, run.name, [hit.expert for hit in hits])
    return tuple(hit.model_copy(update={"label": labels.get(hit.expert)}) for hit in hits)
