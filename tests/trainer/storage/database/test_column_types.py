"""Packed columns round-trip exactly."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from mxd.trainer.storage.database.column_types import (
    ACTIVE,
    TOKEN_IDS,
    PackedActive,
    PackedPairs,
    PackedTokenIds,
    count_packed,
    pack,
    pack_active,
    pack_all,
    unpack_active,
    unpack_all,
)

DIALECT = sqlite.dialect()
NUMBERS = st.integers(0, 2**40)


def leb128(number: int) -> bytes:
    return bytes([number & 127 | 128]) + leb128(number >> 7) if number > 127 else bytes([number])


@given(st.lists(NUMBERS, max_size=200))
def test_numbers_packed_together_are_those_packed_one_by_one(numbers: list[int]) -> None:
    packed, ends = pack_all(np.array(numbers, np.int64))
    assert packed == pack(numbers) == b"".join(map(leb128, numbers))
    assert ends.tolist() == [len(pack(numbers[: number + 1])) for number in range(len(numbers))]


@pytest.mark.parametrize(("number", "error"), [(-1, ValueError), (1.5, TypeError), (2**64, OverflowError)])
def test_only_non_negative_integers_are_packed(number: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        pack([3, number])


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 5)), min_size=1, max_size=20))
def test_examples_packed_together_are_those_packed_one_by_one(ranges: list[tuple[int, int]]) -> None:
    active = np.zeros(205, ACTIVE)
    active["position"], active["rank"] = np.arange(205) * 300, np.arange(205)
    active["activation"] = np.linspace(0, 1, 205)
    low = np.array([start for start, _ in ranges])
    high = low + np.array([count for _, count in ranges])
    column, each = PackedActive(), [active[start:end] for start, end in zip(low, high, strict=True)]
    packed = pack_active(active, low, high)
    assert packed == [column.process_bind_param(one.tobytes(), DIALECT) for one in each]
    assert [unpack_active(one) for one in packed] == [one.tolist() for one in each]


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), NUMBERS), max_size=200))
def test_token_ids_and_pairs_round_trip(pairs: list[tuple[int, int]]) -> None:
    ids, lists = np.array([first for first, _ in pairs], TOKEN_IDS).tobytes(), [list(pair) for pair in pairs]
    for column, value in ((PackedTokenIds(), ids), (PackedPairs(), lists)):
        assert column.process_result_value(column.process_bind_param(value, DIALECT), DIALECT) == value


@given(st.lists(st.lists(NUMBERS, max_size=9), max_size=9))
def test_lists_are_decoded_in_one_call(lists: list[list[int]]) -> None:
    packed = [pack(numbers) for numbers in lists]
    ends = np.cumsum([0, *map(len, packed)], dtype=np.int64)
    assert unpack_all(b"".join(packed)).tolist() == [number for numbers in lists for number in numbers]
    assert count_packed(b"".join(packed), ends).tolist() == np.cumsum([0, *map(len, lists)]).tolist()


@pytest.mark.parametrize("count", [0, 1, 127, 128, 16_383, 16_384, 65_536])
def test_an_expert_may_be_active_on_every_token_of_a_sequence(count: int) -> None:
    active_P = np.zeros(count, ACTIVE)
    active_P["position"] = np.arange(count)
    active_P["activation"] = 0.5
    (packed,) = pack_active(active_P, np.array([0]), np.array([count]))
    assert unpack_active(packed) == [(position, 0.5, 0) for position in range(count)]
