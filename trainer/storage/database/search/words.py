"""Words of a text for full-text search, the same in every database.

A word is a run of letters, digits and marks, without case and diacritics. In scripts that are written without spaces,
such as Chinese, Japanese, Thai and Khmer, each character is a word, so that a phrase of characters is found anywhere. A
symbol, an emoji and a punctuation mark are words of their own.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right

MAX_WORD = 400
"""Maximum characters of a word; PostgreSQL allows 2,046 bytes."""
GAP_WORD = "\ue000"
"""A private-use character between the texts of a document."""
SYMBOL = "\ue001"
"""Precedes the code of a symbol, because databases take symbols for separators or operators."""

_UNSPACED = (
    *((0x0E00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19FF), (0x1A20, 0x1AAF), (0x1B00, 0x1B7F)),
    *((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3031, 0x312F), (0x31A0, 0x31FF), (0x3400, 0x4DBF)),
    *((0x4E00, 0xA4CF), (0xA980, 0xA9FF), (0xAA60, 0xAADF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x16FE0, 0x18DFF)),
    *((0x1AFF0, 0x1B2FF), (0x20000, 0x3FFFF)),
)
"""Blocks of the scripts without spaces: Thai, Lao, Tibetan, Myanmar, Khmer, Tai, Balinese; Han, kana, Bopomofo, Yi;
Javanese, Tai Viet; compatibility forms; Tangut, kana; Han extensions."""
_DIACRITICS = (
    *((0x0300, 0x036F), (0x0591, 0x05BD), (0x05BF, 0x05C7), (0x0610, 0x061A), (0x064B, 0x065F), (0x0670, 0x0670)),
    *((0x06D6, 0x06ED), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF)),
)
"""Marks that searches ignore: of Latin, Greek and Cyrillic, Hebrew and Arabic vowels, and variation selectors."""


class _Letters(dict[int, str]):
    """Translation table: each character's folded form, with spaces where words end."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold(chr(code))
        return folded


def _fold(letter: str) -> str:
    if letter == GAP_WORD:
        return letter
    decomposed = unicodedata.normalize("NFKD", letter.casefold())
    bare = unicodedata.normalize("NFC", "".join(part for part in decomposed if not _is_in(part, _DIACRITICS)))
    return "".join(map(_as_word, bare))


def _as_word(letter: str) -> str:
    category = unicodedata.category(letter)
    if category[0] in "PS" or category in ("Co", "Cn"):
        return f" {SYMBOL}{ord(letter):x} "
    if category == "Cf" and letter != "\N{ZERO WIDTH SPACE}":
        return ""
    if category[0] not in "LMN":
        return " "
    return f" {letter} " if _is_in(letter, _UNSPACED) else letter


def _is_in(letter: str, blocks: tuple[tuple[int, int], ...]) -> bool:
    place = bisect_right(blocks, (ord(letter), 0x110000)) - 1
    return place >= 0 and ord(letter) <= blocks[place][1]


_LETTERS = _Letters()


def split_words(written: str) -> list[str]:
    """Split a text into normalised words."""
    return [word[:MAX_WORD] for word in written.translate(_LETTERS).split()]


def is_beginning(word: str) -> bool:
    """Return whether a last typed word is used as a prefix. A single letter matches too much; a symbol is complete."""
    parts = split_words(word)
    return len(word) > 1 and bool(parts) and not parts[-1].startswith(SYMBOL)
