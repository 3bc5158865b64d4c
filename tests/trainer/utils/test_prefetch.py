"""Prefetching: same items and errors, limited depth, no thread left."""

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.utils.distributed import prefetch


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


@given(items=st.lists(st.none() | st.integers()), depth=st.integers(1, 5), fails=st.booleans())
def test_items_and_errors_come_in_their_order(items: list[int | None], depth: int, fails: bool) -> None:
    def source() -> Iterator[int | None]:
        yield from items
        if fails:
            raise LookupError("the end")

    stream = prefetch(source(), depth)
    assert [next(stream) for _ in items] == items
    with pytest.raises(LookupError if fails else StopIteration):
        next(stream)
    assert threads() == []
    assert list(stream) == []


def test_at_most_depth_items_are_computed_ahead() -> None:
    computed: list[int] = []
    fourth = threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            computed.append(number)
            if number == 3:
                fourth.set()
            yield number

    stream = prefetch(items(), 3)
    assert next(stream) == 0
    assert fourth.wait(10)
    stream.close()
    assert computed == [0, 1, 2, 3]


def test_the_thread_ends_when_the_consumer_stops() -> None:
    stream = prefetch(iter(range(1000)), 2)
    assert next(stream) == 0
    assert len(threads()) == 1
    stream.close()
    assert threads() == []
