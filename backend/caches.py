"""Values in memory that are expensive to build: data derived from an index, and loaded runs."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class _Turn:
    """A lock that can be referenced weakly."""

    def __init__(self) -> None:
        self.lock = Lock()


class StampedCache(Generic[T]):
    """The most recently used values by key. A value is built again when its stamp has changed."""

    def __init__(self, capacity: int = 8, is_full: Callable[[Iterable[T]], bool] = lambda _values: False) -> None:
        """Keep at most ``capacity`` values, and fewer while ``is_full`` says so; the last one always stays."""
        self._capacity, self._is_full = capacity, is_full
        self._lock = Lock()
        self._turns: WeakValueDictionary[Hashable, _Turn] = WeakValueDictionary()
        """One lock per key, which exists as long as a thread holds it or waits for it."""
        self._entries: OrderedDict[Hashable, tuple[Hashable, T]] = OrderedDict()

    def get(self, key: Hashable, stamp: Hashable, build: Callable[[], T]) -> T:
        """Return the value of ``key``, built if it is missing or its stamp has changed."""
        with self._lock:
            turn = self._turns.get(key)
            if turn is None:
                turn = self._turns[key] = _Turn()
        with turn.lock:  # a slow build of one value delays no other
            with self._lock:
                entry = self._entries.get(key)
            value = entry[1] if entry is not None and entry[0] == stamp else build()
            with self._lock:
                self._entries[key] = (stamp, value)
                self._entries.move_to_end(key)
                while len(self._entries) > self._capacity or (
                    len(self._entries) > 1 and self._is_full(kept for _, kept in self._entries.values())
                ):
                    self._entries.popitem(last=False)
            return value
