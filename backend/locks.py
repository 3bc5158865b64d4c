"""One lock per key."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from threading import Lock
from weakref import WeakValueDictionary


class _Turn:
    """A lock that can be referenced weakly."""

    def __init__(self) -> None:
        self.lock = Lock()


class KeyedLocks:
    """Locks by key, which exist as long as a thread holds them or waits for them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._turns: WeakValueDictionary[Hashable, _Turn] = WeakValueDictionary()

    @contextmanager
    def of(self, key: Hashable) -> Iterator[None]:
        """Hold the lock of ``key``."""
        with self._lock:
            turn = self._turns.get(key)
            if turn is None:
                turn = self._turns[key] = _Turn()
        with turn.lock:
            yield
