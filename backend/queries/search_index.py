"""What searching the index of a run needs in memory: who is active on which token, and what was searched for last.

A megaword of pairs (86,015 experts with 12 tokens each) takes 12 MB, the searches 44 MB at most.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sqlalchemy import text
from sqlalchemy.orm import Session

from backend.queries.table import PackedLists

SEARCHES_HELD = 128
"""Of 86,015 experts: 344 kB each at most, when a word is in the contexts of all of them."""
RANKINGS_HELD = 1_024

SearchText = Annotated[str, Field(min_length=1, max_length=200)]
Ints = NDArray[np.int32]
T = TypeVar("T")


class Held(Generic[T]):
    """What was found for the searches last asked for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[Hashable, T] = OrderedDict()

    def known(self, typed: Hashable) -> T | None:
        """What was found for a search; None where it has to be looked for."""
        return self._found.get(typed)

    def of(self, typed: Hashable, find: Callable[[], T]) -> T:
        """What was found for a search, or is found now."""
        found = self._found.get(typed)
        if found is None:
            found = self._found[typed] = find()
            while len(self._found) > self._most:
                self._found.popitem(last=False)
        return found


@dataclass(frozen=True)
class SearchIndex:
    """What searching a run's index needs beside the store: who is active on a token."""

    token: Ints
    """Of every (token, expert) pair, sorted by token."""
    expert: Ints
    share: NDArray[np.float32]
    """Of the expert's active tokens."""

    @cached_property
    def found_in_contexts(self) -> Held[Ints]:
        """Experts whose contexts fit what was searched for last: every page of a list asks for the same again."""
        return Held(SEARCHES_HELD)

    @cached_property
    def best_in_contexts(self) -> Held[tuple[int, ...]]:
        """The best of them, for more searches: what is common is searched for often, and takes longest to rank."""
        return Held(RANKINGS_HELD)

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
    wanted = text("SELECT expert, active_tokens, top_tokens FROM experts WHERE run_id = :run ORDER BY expert")
    rows = session.execute(wanted, {"run": run_id}).all()
    lists = PackedLists.of([bytes(row[2]) for row in rows])
    numbers, ends = lists.all_numbers()
    experts, active = np.array([row[:2] for row in rows], np.int64).reshape(-1, 2).T
    pairs = np.diff(ends) // 2
    tokens = numbers[::2]
    order = np.argsort(tokens, kind="stable")
    return SearchIndex(
        token=tokens[order].astype(np.int32),
        expert=np.repeat(experts, pairs)[order].astype(np.int32),
        share=(numbers[1::2] / np.repeat(np.maximum(active, 1), pairs))[order].astype(np.float32),
    )
