"""Compressed column types: small integers in as few bytes as possible.

The compression is invisible in Python. Integers are stored as LEB128: groups of seven bits, lowest first, with the
eighth bit set if more follow.
"""

# ruff: noqa: ARG002 - SQLAlchemy gives every type the dialect; these are the same in all.

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import accumulate, chain, pairwise
from operator import index
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator

from mxd.trainer.errors import DamagedDatabaseError

P = ParamSpec("P")
T = TypeVar("T")

TOKEN_IDS = np.dtype("<u4")
ACTIVE = np.dtype([("position", "<u2"), ("activation", "<f4"), ("rank", "<u2")])


def _reports_damage(decoder: Callable[P, T]) -> Callable[P, T]:
    @wraps(decoder)
    def decode(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return decoder(*args, **kwargs)
        except (struct.error, LookupError, ValueError, TypeError, OverflowError) as error:
            raise DamagedDatabaseError from error

    return decode


def pack_all(numbers_M: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
    """Encode each number as LEB128. Returns the concatenated bytes, and the offset where each number ends.
    Raises ValueError if a number is negative."""
    if numbers_M.min(initial=0) < 0:
        raise ValueError("Negative numbers cannot be packed.")
    bits_M = np.frexp(numbers_M.astype(np.float64))[1]  # exact below 2^53
    bytes_M = np.maximum(1, -(-bits_M // 7))
    end_M = np.cumsum(bytes_M)
    packed_B = np.empty(end_M[-1] if len(end_M) else 0, np.uint8)
    for place in range(bytes_M.max(initial=0)):
        longer_M = bytes_M > place
        offset_M = (end_M - bytes_M)[longer_M] + place
        packed_B[offset_M] = numbers_M[longer_M] >> 7 * place & 127 | (bytes_M[longer_M] > place + 1) << 7
    return packed_B.tobytes(), end_M


def pack(numbers: Iterable[int]) -> bytes:
    return pack_all(np.fromiter(map(index, numbers), np.int64))[0]


@_reports_damage
def unpack_all(packed: bytes) -> NDArray[np.int64]:
    """Decode the concatenated outputs of several calls of ``pack``."""
    bytes_B = np.frombuffer(packed, np.uint8)
    if packed.isascii():
        return bytes_B.astype(np.int64)
    last_M = np.flatnonzero(bytes_B < 128)
    first_M = np.concatenate([np.zeros(1, np.int64), last_M[:-1] + 1])
    place_B = np.arange(len(bytes_B)) - np.repeat(first_M, last_M - first_M + 1)
    if place_B.max() > 8:
        raise OverflowError("A number has more than 63 bits.")
    return np.add.reduceat((bytes_B & 127).astype(np.int64) << 7 * place_B, first_M)


def unpack(packed: bytes) -> list[int]:
    numbers: list[int] = unpack_all(packed).tolist()
    return numbers


def pack_active(active_P: NDArray[np.void], low_E: NDArray[np.int64], high_E: NDArray[np.int64]) -> list[bytes]:
    """Encode the entries ``low`` to ``high`` of an array of ``ACTIVE`` as one ``PackedActive`` value each."""
    count_E = high_E - low_E
    first_E = np.cumsum(count_E) - count_E  # of the entries of all examples, one after another
    number_Q = np.arange(count_E.sum()) - np.repeat(first_E, count_E)
    active_Q = active_P[number_Q + np.repeat(low_E, count_E)]
    position_Q = active_Q["position"].astype(np.int64)
    begin_E = 2 * first_E + np.arange(len(count_E))
    step_Q = np.repeat(begin_E + 1, count_E) + number_Q
    numbers_M = np.empty(2 * len(active_Q) + len(count_E), np.int64)
    numbers_M[begin_E] = count_E
    numbers_M[step_Q] = position_Q - np.where(number_Q, np.roll(position_Q, 1), 0)
    numbers_M[step_Q + np.repeat(count_E, count_E)] = active_Q["rank"]
    packed, end_M = pack_all(numbers_M)
    ends = end_M[begin_E + 2 * count_E].tolist()
    activations, limits = active_Q["activation"].tobytes(), (4 * (first_E + count_E)).tolist()
    return [
        packed[start:end] + activations[low:high]
        for (start, end), (low, high) in zip(pairwise([0, *ends]), pairwise([0, *limits]), strict=True)
    ]


@_reports_damage
def unpack_active(packed: bytes) -> list[tuple[int, float, int]]:
    """Decode a ``PackedActive`` value to (position, activation, rank)."""
    length = next((place for place, byte in enumerate(packed) if byte < 128), -1) + 1
    (count,) = unpack(packed[:length])
    split = len(packed) - 4 * count
    numbers = unpack(packed[:split])
    activations = struct.unpack_from(f"<{count}f", packed, split)
    return list(zip(accumulate(numbers[1 : count + 1]), activations, numbers[count + 1 :], strict=True))


@_reports_damage
def count_packed(packed: bytes, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many integers end before each byte offset of concatenated ``pack`` outputs."""
    ended = np.cumsum(np.frombuffer(packed, np.uint8) < 128)
    return np.concatenate([np.zeros(1, np.int64), ended])[ends]


@dataclass(frozen=True)
class PackedLists:
    """A compressed list of small integers per row. Shape: N rows."""

    packed: bytes
    ends: NDArray[np.int64]
    """[N + 1] byte offsets: the list of row n is between entries n and n + 1."""

    @classmethod
    def of(cls, lists: Sequence[bytes]) -> Self:
        return cls(b"".join(lists), np.cumsum([0, *map(len, lists)], dtype=np.int64))

    def numbers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the integers of all lists concatenated, and [N + 1] offsets of the lists."""
        return unpack_all(self.packed), count_packed(self.packed, self.ends)

    def lists(self) -> list[list[int]]:
        numbers, ends = self.numbers()
        flat = numbers.tolist()
        return [flat[start:stop] for start, stop in pairwise(ends.tolist())]


@_reports_damage
def unpack_token_ids(packed: bytes) -> NDArray[np.uint32]:
    return np.array(unpack(packed), TOKEN_IDS)


class _Packed(TypeDecorator[T]):
    impl = LargeBinary
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        return None if value is None else self.encode(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> T | None:
        return None if value is None else _reports_damage(self.decode)(value)


class PackedTokenIds(_Packed[bytes]):
    """Little-endian unsigned 32-bit token ids."""

    cache_ok = True
    encode = staticmethod(lambda value: pack(np.frombuffer(value, TOKEN_IDS).tolist()))
    decode = staticmethod(lambda packed: unpack_token_ids(packed).tobytes())


class PackedActive(_Packed[bytes]):
    """Little-endian (uint16 position, float32 activation, uint16 rank) by position.

    Stored as count, position differences, ranks, then the activations as float32.
    """

    cache_ok = True
    decode = staticmethod(lambda packed: np.array(unpack_active(packed), ACTIVE).tobytes())

    @staticmethod
    def encode(value: bytes) -> bytes:
        active_P = np.frombuffer(value, ACTIVE)
        return pack_active(active_P, np.array([0]), np.array([len(active_P)]))[0]


class PackedCounts(_Packed[list[int]]):
    cache_ok = True
    encode = staticmethod(pack)
    decode = staticmethod(unpack)


class PackedPairs(_Packed[list[list[int]]]):
    cache_ok = True
    encode = staticmethod(lambda value: pack(chain.from_iterable(value)))

    @staticmethod
    def decode(packed: bytes) -> list[list[int]]:
        numbers = unpack(packed)
        return [list(pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]


def pack_routed(counts_L: NDArray[np.int64], experts_P: NDArray[np.int64], num_experts: int) -> tuple[bytes, bytes]:
    """Encode counts as uint16, and experts as uint16 or, above 65,536 experts, uint32."""
    return counts_L.astype("<u2").tobytes(), experts_P.astype(_expert_type(num_experts)).tobytes()


def unpack_routed(counts: bytes, experts: bytes, num_experts: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return (
        np.frombuffer(counts, "<u2").astype(np.int64),
        np.frombuffer(experts, _expert_type(num_experts)).astype(np.int64),
    )


def _expert_type(num_experts: int) -> np.dtype[Any]:
    return np.dtype("<u2") if num_experts <= 1 << 16 else np.dtype("<u4")
