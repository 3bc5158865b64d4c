"""Filters for sampled text: short, repetitive, unwanted and duplicate texts."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

SHINGLE = 5
"""Words per shingle, the unit in which texts are compared."""
LOOP = 16
"""Shingles of a loop: more than a third of so many in a row occur earlier in the text."""
UNWANTED = {
    "assistant": re.compile(r"\b(SmolLM|Hugging ?Face|AI (language )?(model|assistant))\b", re.IGNORECASE),
    "sensitive": re.compile(
        r"\b(rap(e|ed|ist)|sexual\w*|porn\w*|genocid\w*|nazis?|suicid\w*|jews|muslims?|terroris\w*|fuck\w*|shit)\b",
        re.IGNORECASE,
    ),
    "address": re.compile(r"https?:|www\.|\w@\w+\.\w"),
    "undecodable": re.compile("\ufffd"),
}
"""Filter -> what its texts contain: talk about itself, invented texts that could offend, links that may exist."""


@dataclass(frozen=True)
class Limits:
    """Conditions that a kept text satisfies."""

    shortest: int = 120
    """Characters."""
    repeated_share: float = 0.12
    """Largest share of shingles that occur earlier in the same text."""
    compressed_share: float = 0.28
    """Smallest ratio of compressed to plain bytes."""
    longest_word: int = 80
    """Characters without a white space."""
    common_share: float = 0.2
    """Largest share of shingles in common with one earlier text."""


def shingles(text: str) -> list[int]:
    """Hashes of every run of SHINGLE words, in lower case."""
    words = text.lower().split()
    return [zlib.crc32(" ".join(words[at : at + SHINGLE]).encode()) for at in range(len(words) - SHINGLE + 1)]


def before_loop(text: str) -> str:
    """The text up to the sentence in which it begins to repeat itself; all of it when it does not."""
    parts, seen = shingles(text), set[int]()
    repeats = []
    for part in parts:
        repeats.append(part in seen)
        seen.add(part)
    for at in range(len(parts) - LOOP + 1):
        if 3 * sum(repeats[at : at + LOOP]) > LOOP:
            start = [word.start() for word in re.finditer(r"\S+", text)][repeats.index(True, at)]
            return text[: max(text.rfind(end, 0, start) for end in (". ", "! ", "? ", "\n")) + 1]
    return text


def defect(text: str, limits: Limits) -> str | None:
    """Name of the filter that rejects the text by itself, None when it passes."""
    parts, plain = shingles(text), text.encode()
    if len(text) < limits.shortest or not parts:
        return "short"
    if 1 - len(set(parts)) / len(parts) > limits.repeated_share:
        return "repeated"
    if len(zlib.compress(plain, 9)) < limits.compressed_share * len(plain):
        return "compressible"
    if max(map(len, text.split())) > limits.longest_word:
        return "long word"
    return next((name for name, pattern in UNWANTED.items() if pattern.search(text)), None)


class Duplicates:
    """Texts seen so far, by their shingles: each shingle belongs to the first text that has it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._owners: dict[int, int] = {}
        self._texts = 0

    def repeats(self, text: str) -> bool:
        """Return True if the text shares too much with one earlier text; otherwise add it."""
        parts = set(shingles(text))
        common = Counter(self._owners[part] for part in parts if part in self._owners)
        if common and max(common.values()) > self._limits.common_share * len(parts):
            return True
        self._owners = dict.fromkeys(parts, self._texts) | self._owners
        self._texts += 1
        return False


def usable(lines: Iterable[dict[str, Any]], limits: Limits, removed: Counter[str]) -> Iterator[dict[str, str]]:
    """Text and kind of the lines that pass every filter; `removed` counts the others."""
    duplicates = Duplicates(limits)
    for line in lines:
        text = before_loop(line["text"].rstrip("\ufffd")).strip()
        reason = defect(text, limits) or ("duplicate" if duplicates.repeats(text) else None)
        if reason:
            removed[reason] += 1
        else:
            yield {"kind": line["kind"], "text": text}
