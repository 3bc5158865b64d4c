"""Let an iterator run ahead of its consumer, in a thread of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class _End:
    """What the thread answers when there is nothing left: a StopIteration cannot cross a future."""


def ahead(items: Iterator[T], depth: int) -> Generator[T]:
    """The same items in the same order, with up to ``depth`` of them made before they are asked for.

    Worth it where making an item lets go of the interpreter lock, as tokenizers and file reads do. What ``items``
    raises is raised here, in its place. When the consumer stops (``close``, an error, the end) the item in the making
    is waited for, no other is begun, and the thread has ended.
    """
    end = _End()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead") as thread:
        waiting: deque[Future[T | _End]] = deque(thread.submit(next, items, end) for _ in range(depth))
        try:
            while not isinstance(item := waiting.popleft().result(), _End):
                waiting.append(thread.submit(next, items, end))
                yield item
        finally:
            for future in waiting:
                future.cancel()
