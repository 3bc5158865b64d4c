"""What is derived from a run's index and kept in memory: made when first needed, and again after a new index."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from sqlalchemy.orm import Session

from trainer.store import IndexRecord

RUNS_HELD = 8
T = TypeVar("T")


class HeldPerIndex(Generic[T]):
    """One ``T`` for each of the runs last asked for."""

    def __init__(
        self, build: Callable[[Session, int], T], stamp: Callable[[Session, int], Hashable] = lambda _, __: None
    ) -> None:
        """``build`` makes it from the store, for the run of this row; again whenever ``stamp`` gives something else."""
        self._build, self._stamp = build, stamp
        self._lock = Lock()
        self._held: OrderedDict[int, tuple[Hashable, T]] = OrderedDict()

    def of(self, session: Session, index: IndexRecord) -> T:
        """What belongs to ``index``."""
        stamp = (index.created_at, self._stamp(session, index.run_id))
        with self._lock:
            held = self._held.pop(index.run_id, None)
            fresh = held is not None and held[0] == stamp
            found = held[1] if held is not None and fresh else self._build(session, index.run_id)
            self._held[index.run_id] = (stamp, found)
            while len(self._held) > RUNS_HELD:
                self._held.popitem(last=False)
            return found
