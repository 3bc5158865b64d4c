"""In-memory data for searching a run: which experts have which top tokens, and recent results.

86,015 experts with 12 tokens each take 12 MB, cached searches at most 44 MB.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Annotated, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sqlalchemy import text
from sqlalchemy.orm import Session

from mxd.backend.queries.expert_table import PackedLists

SEARCHES_HELD = 128
"""Cached searches; at most 344 kB each for 86,015 experts."""
RANKINGS_HELD = 1_024

SearchText = Annotated[str, Field(min_length=1, max_length=200)]
Ints = NDArray[np.int32]
T = TypeVar("T")


class LruCache(Generic[T]):
    """LRU cache of search results."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._results: OrderedDict[Hashable, T] = OrderedDict()

    def known(self, typed: Hashable) -> T | None:
        """Return a cached result, or None."""
        return self._results.get(typed)

    def of(self, typed: Hashable, find: Callable[[], T]) -> T:
        """Return a cached result, or compute it."""
        result = self._results.get(typed)
        if result is None:
            result = self._results[typed] = find()
            while len(self._results) > self._size:
                self._results.popitem(last=False)
        return result


@dataclass(frozen=True)
class SearchIndex:
    """Experts by top token."""

    token: Ints
    """Token of every (token, expert) pair, ascending."""
    expert: Ints
    share: NDArray[np.float32]
    """Share of the expert's active tokens."""

    @cached_property
    def found_in_examples(self) -> LruCache[Ints]:
        """Experts whose examples match recent searches; every page of a list needs them again."""
        return LruCache(SEARCHES_HELD)

    @cached_property
    def best_in_examples(self) -> LruCache[tuple[int, ...]]:
        """Best matches of recent searches. Common words are slow to rank."""
        return LruCache(RANKINGS_HELD)

    def users(self, tokens: Collection[int]) -> Ints:
        """Experts whose most frequent tokens include one of ``tokens``; some more than once."""
        return self.expert[self._places(tokens)]

    def strongest_users(self, tokens: Collection[int], count: int) -> dict[int, tuple[int, float]]:
        """The first ``count`` of them by the largest share that one of ``tokens`` has, with that token and share."""
        places = self._places(tokens)
        share = self.share[places]
        enough = count * len(tokens)  # an expert has one place a token at most
        if 0 < enough < len(share):
            places = places[share >= np.partition(share, -enough)[-enough]]
        order = places[np.lexsort((self.expert[places], -self.share[places]))]
        columns = (column[order].tolist() for column in (self.expert, self.token, self.share))
        strongest: dict[int, tuple[int, float]] = {}
        for expert, token, its_share in zip(*columns, strict=True):
            strongest.setdefault(expert, (token, its_share))
        return dict(islice(strongest.items(), count))

    def _places(self, tokens: Collection[int]) -> NDArray[np.int64]:
        requested = np.fromiter(tokens, np.int64, len(tokens))
        starts, ends = np.searchsorted(self.token, requested), np.searchsorted(self.token, requested + 1)
        ranges = [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
        return np.concatenate([np.zeros(0, np.int64), *ranges])


def build_search_index(session: Session, run_id: int) -> SearchIndex:
    """Read who is active on which token."""
    requested = text("SELECT expert, active_tokens, top_tokens FROM experts WHERE run_id = :run ORDER BY expert")
    rows = session.execute(requested, {"run": run_id}).all()
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
