"""Finding experts by words: in labels, among the tokens they are active on, in the text of their largest contexts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from backend.database import reading
from backend.queries.browsing import BrowsedRun
from backend.queries.columns import among
from backend.queries.contexts import StoredContext, describe, stored_contexts
from backend.queries.search_index import Ints
from backend.schemas import AutomaticLabel, Context, SearchHit
from backend.vocabulary import Vocabulary, fold
from trainer.search_text import SEARCH_MARGIN, LastWord, Ranked, best_experts_with, experts_with, is_beginning
from trainer.store import ContextRecord, RunRecord

MAX_WORDS = 16
CANDIDATES = 2_000
"""Matching experts that are ranked: those of a word that is nearly everywhere say little, however they are ordered."""
MOST_RANKED = 100
"""The largest limit of a search."""
RANKS = (0, 4, 1_000_000)
"""Of an expert's contexts, in turn, until one has what was searched for: one of the first nearly always does."""

Matched = Literal["label", "token", "context"]


def words_of(typed: str) -> list[str]:
    """The words that a person typed, without those that have neither letter nor digit."""
    words = typed.replace("\0", " ").split()
    return [word for word in words if any(letter.isalnum() for letter in word)][:MAX_WORDS]


def labelled_like(browsed: BrowsedRun, typed: str) -> list[int]:
    """Experts that people gave a label that contains ``typed``: equal ones first, then those that begin with it."""
    folded = typed.strip().casefold()
    labels = ((expert, label.casefold()) for expert, label in browsed.labels.items())
    found = [(label != folded, not label.startswith(folded), expert) for expert, label in labels if folded in label]
    return [expert for _, _, expert in sorted(found)]


def find_experts(store: Engine, browsed: BrowsedRun, typed: str, vocabulary: Vocabulary) -> Ints:
    """Experts that ``typed`` is found in: their label, their most frequent tokens, or a context; some twice."""
    labelled: list[int] = []
    if typed.strip():
        labelled += labelled_like(browsed, typed)
        labelled += browsed.automatic.like(typed.strip())
    users = browsed.search.users(vocabulary.matching(typed))
    return np.concatenate([np.array(labelled, np.int32), users, _in_contexts(store, browsed, typed)])


def is_held(browsed: BrowsedRun, typed: str) -> bool:
    """Whether ``find_experts`` has nothing to read."""
    words = tuple(words_of(typed))
    return not words or browsed.search.found_in_contexts.known(words) is not None


def _in_contexts(store: Engine, browsed: BrowsedRun, typed: str) -> Ints:
    words = tuple(words_of(typed))
    if not words:
        return np.zeros(0, np.int32)

    def find() -> Ints:
        with reading(store) as session:
            return experts_with(session, browsed.record.id, words)

    return browsed.search.found_in_contexts.of(words, find)


def best_experts(session: Session, browsed: BrowsedRun, typed: str) -> tuple[int, ...]:
    """The ``MOST_RANKED`` experts whose contexts fit ``typed`` best, best first.

    Whole words go before those that the last one begins, which are looked for where there is room left: all that begins
    like a common word takes ten times as long as the word.
    """
    words = tuple(words_of(typed))
    if not words:
        return ()
    found = _ranked(session, browsed, words, "whole")
    if len(found) >= MOST_RANKED or not is_beginning(words[-1]):
        return found
    return tuple(dict.fromkeys([*found, *_ranked(session, browsed, words, "beginning")]))[:MOST_RANKED]


def _ranked(session: Session, browsed: BrowsedRun, words: tuple[str, ...], last: LastWord) -> tuple[int, ...]:
    def find() -> tuple[int, ...]:
        return best_experts_with(session, browsed.record.id, words, last, Ranked(CANDIDATES, MOST_RANKED))

    return browsed.search.best_in_contexts.of((words, last), find)


def best_contexts(
    session: Session, browsed: BrowsedRun, typed: str, experts: Sequence[int], vocabulary: Vocabulary
) -> dict[int, Context]:
    """Of each expert the context that shows ``typed``: the largest one with all its words around the peak; where none
    has, the largest of all."""
    words = [fold(word) for word in words_of(typed)]
    largest: dict[int, StoredContext] = {}
    fitting: dict[int, StoredContext] = {}
    for low, high in pairwise(RANKS):
        left = [expert for expert in experts if expert not in fitting]
        for row in _of_ranks(session, browsed.record, left, low, high) if left else ():
            largest.setdefault(row.expert, row)
            if row.expert not in fitting and _fits(row, words, vocabulary):
                fitting[row.expert] = row
    return {expert: describe(row, vocabulary) for expert, row in {**largest, **fitting}.items()}


def _of_ranks(session: Session, run: RunRecord, experts: Collection[int], low: int, high: int) -> list[StoredContext]:
    """The largest contexts of some experts, from one rank to another, in that order."""
    ranked = ContextRecord.interval == 0, ContextRecord.rank >= low, ContextRecord.rank < high
    of_experts = ContextRecord.run_id == run.id, among(session, ContextRecord.expert, experts)
    return stored_contexts(session, [*of_experts, *ranked], [ContextRecord.expert, ContextRecord.rank])


def _fits(context: StoredContext, words: Sequence[str], vocabulary: Vocabulary) -> bool:
    start = max(0, context.position - SEARCH_MARGIN)
    window = context.token_ids[start : context.position + SEARCH_MARGIN + 1]
    around = "".join(map(vocabulary.name, window)).casefold()
    return all(word in around for word in words)


def search(
    session: Session, browsed: BrowsedRun, typed: str, limit: int, vocabulary: Vocabulary
) -> tuple[SearchHit, ...]:
    """The experts that fit ``typed`` best, each once: by label, then by token, then by context."""
    matched: dict[int, Matched] = dict.fromkeys(labelled_like(browsed, typed)[:limit], "label")
    named = browsed.automatic.like(typed.strip()) if typed.strip() else []
    for expert in named[: max(limit - len(matched), 0) // 3]:
        matched.setdefault(expert, "label")
    # Some room is kept for contexts, so that a common token does not hide them.
    room = max(limit - len(matched), 0) * 2 // 3
    for expert in browsed.search.strongest_users(vocabulary.matching(typed), room):
        matched.setdefault(expert, "token")
    ranked = best_experts(session, browsed, typed)[:limit]
    best = [expert for expert in ranked if expert not in matched][: limit - len(matched)]
    contexts = best_contexts(session, browsed, typed, best, vocabulary)
    for expert in best:
        matched[expert] = "context"
    return tuple(_hit(browsed, expert, how, contexts.get(expert)) for expert, how in list(matched.items())[:limit])


def _hit(browsed: BrowsedRun, expert: int, matched: Matched, context: Context | None) -> SearchHit:
    automatic = browsed.automatic.of(expert)
    return SearchHit(
        expert=expert,
        label=browsed.labels.get(expert),
        automatic=None if automatic is None else AutomaticLabel(**automatic),
        matched=matched,
        context=context,
    )
