"""What is derived from the indexes of runs and kept in memory: made when first needed, and again after a new index."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from sqlalchemy.orm import Session

from trainer.store import IndexRecord

RUNS_HELD = 8
T = TypeVar("T")
Stamp = Callable[[Session, int], Hashable]
"""Gives something else whenever what is kept of the run of this row is no longer so."""


def _constant(_session: Session, _run_id: int) -> Hashable:
    return None


class _Held(Generic[T]):
    """One ``T`` for each of the keys last asked for, as long as its stamp is the same."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: OrderedDict[Hashable, tuple[Hashable, T]] = OrderedDict()

    def of(self, key: Hashable, stamp: Hashable, build: Callable[[], T]) -> T:
        """What belongs to ``key``, built where there is none with this stamp."""
        with self._lock:
            held = self._held.pop(key, None)
            fresh = held is not None and held[0] == stamp
            found = held[1] if held is not None and fresh else build()
            self._held[key] = (stamp, found)
            while len(self._held) > RUNS_HELD:
                self._held.popitem(last=False)
            return found


class HeldPerIndex(Generic[T]):
    """One ``T`` for each of the runs last asked for."""

    def __init__(self, build: Callable[[Session, int], T], stamp: Stamp = _constant) -> None:
        """``build`` makes it from the store, for the run of this row; again whenever ``stamp`` gives something else."""
        self._build, self._stamp = build, stamp
        self._held = _Held[T]()

    def of(self, session: Session, index: IndexRecord) -> T:
        """What belongs to ``index``."""
        run_id = index.run_id
        stamp = (index.created_at, self._stamp(session, run_id))
        return self._held.of(run_id, stamp, lambda: self._build(session, run_id))


class HeldPerPair(Generic[T]):
    """One ``T`` for each of the pairs of runs last asked for; the order of the two matters."""

    def __init__(self, build: Callable[[Session, int, int], T], stamp: Stamp) -> None:
        """``build`` makes it for the runs of two rows; again whenever ``stamp`` gives something else of either."""
        self._build, self._stamp = build, stamp
        self._held = _Held[T]()

    def of(self, session: Session, index: IndexRecord, other: IndexRecord) -> T:
        """What belongs to two indexes."""
        key = (index.run_id, other.run_id)
        stamp = tuple((each.created_at, self._stamp(session, each.run_id)) for each in (index, other))
        return self._held.of(key, stamp, lambda: self._build(session, *key))
