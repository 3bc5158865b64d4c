"""Running ahead changes when items are made, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.ahead import ahead


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ahead")]


@given(items=st.lists(st.none() | st.integers()), depth=st.integers(1, 5))
def test_gives_the_same_items_in_the_same_order(items: list[int | None], depth: int) -> None:
    assert list(ahead(iter(items), depth)) == items
    assert threads() == []


def test_makes_items_in_another_thread() -> None:
    made_by = list(ahead((threading.current_thread().name for _ in range(3)), 2))
    assert all(name.startswith("ahead") for name in made_by)


def test_raises_in_place_what_the_items_raise() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise LookupError("third")

    stream = ahead(items(), 4)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(LookupError, match="third"):
        next(stream)
    assert threads() == []
    assert list(stream) == []


def test_runs_no_further_ahead_than_its_depth() -> None:
    made: list[int] = []
    fourth = threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            if number == 3:
                fourth.set()
            yield number

    stream = ahead(items(), 3)
    assert next(stream) == 0
    assert fourth.wait(10)
    stream.close()
    assert made == [0, 1, 2, 3]


def test_the_thread_ends_when_the_consumer_stops() -> None:
    stream = ahead(iter(range(1000)), 2)
    assert next(stream) == 0
    assert len(threads()) == 1
    stream.close()
    assert threads() == []


def test_begins_nothing_before_the_first_item_is_asked_for() -> None:
    stream = ahead(iter([1]), 2)
    assert threads() == []
    assert list(stream) == [1]
