"""In-memory caches of data derived from indexes, rebuilt after a new index."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from sqlalchemy.orm import Session

from mxd.backend.locks import KeyedLocks
from mxd.trainer.storage.database.tables import IndexRecord

MAX_RUNS = 8
T = TypeVar("T")
Stamp = Callable[[Session, int], Hashable]
"""Returns another value whenever the cached data of a run (by row id) is outdated."""


def _constant(_session: Session, _run_id: int) -> Hashable:
    return None


class _StampedCache(Generic[T]):
    """LRU cache whose entries are valid as long as their stamp is unchanged."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._turns = KeyedLocks()
        self._entries: OrderedDict[Hashable, tuple[Hashable, T]] = OrderedDict()

    def get(self, key: Hashable, stamp: Hashable, build: Callable[[], T]) -> T:
        """Return the value of ``key``, built if it is missing or its stamp has changed."""
        with self._turns.of(key):  # a slow build of one entry delays no other
            with self._lock:
                entry = self._entries.get(key)
            value = entry[1] if entry is not None and entry[0] == stamp else build()
            with self._lock:
                self._entries[key] = (stamp, value)
                self._entries.move_to_end(key)
                while len(self._entries) > MAX_RUNS:
                    self._entries.popitem(last=False)
            return value


class IndexCache(Generic[T]):
    """Cache with one value per run."""

    def __init__(self, build: Callable[[Session, int], T], stamp: Stamp = _constant) -> None:
        """Build values with ``build`` (session, run id), again whenever ``stamp`` returns another value."""
        self._build, self._stamp = build, stamp
        self._cache = _StampedCache[T]()

    def of(self, session: Session, index: IndexRecord) -> T:
        """Return the value of an indexed run."""
        run_id = index.run_id
        stamp = (index.created_at, self._stamp(session, run_id))
        return self._cache.get(run_id, stamp, lambda: self._build(session, run_id))


class PairCache(Generic[T]):
    """Cache with one value per ordered pair of runs."""

    def __init__(self, build: Callable[[Session, int, int], T], stamp: Stamp) -> None:
        """Build values with ``build`` (session, run ids), again whenever ``stamp`` changes for either run."""
        self._build, self._stamp = build, stamp
        self._cache = _StampedCache[T]()

    def of(self, session: Session, index: IndexRecord, other: IndexRecord) -> T:
        """Return the value of two indexed runs."""
        key = (index.run_id, other.run_id)
        stamp = tuple((each.created_at, self._stamp(session, each.run_id)) for each in (index, other))
        return self._cache.get(key, stamp, lambda: self._build(session, *key))
