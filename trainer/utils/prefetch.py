"""Compute items of an iterator in a background thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class _End:
    """Sentinel for an exhausted iterator: a future cannot carry StopIteration."""


def prefetch(items: Iterator[T], depth: int) -> Generator[T]:
    """Yield from ``items``, computing up to ``depth`` of them ahead in a background thread.

    Only useful when producing an item releases the GIL (tokenising, file reads). Exceptions from ``items`` are
    re-raised in order. Closing the generator waits for the item being computed, starts no new one and joins the thread.
    """
    end = _End()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as thread:
        pending: deque[Future[T | _End]] = deque(thread.submit(next, items, end) for _ in range(depth))
        try:
            while not isinstance(item := pending.popleft().result(), _End):
                pending.append(thread.submit(next, items, end))
                yield item
        finally:
            for future in pending:
                future.cancel()
