"""What can be said of a token by looking at it and at what stands before it: one column a kind of statement.

Every statement is a number, 0 where there is nothing to say; what a number means is kept beside the columns. Nothing
that comes after the word a token belongs to is looked at: an expert cannot see it either.

Shapes: C columns, L tokens of a sequence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trainer.labelling.surroundings import NAMES, surroundings, telltale_lookup

COLUMNS = ("token", "word", "before", "before_two", "kind", "kind_before", "start", "ending", "inside", "language")
"""token: its text. word: the whole word it is in. before: the token before; before_two: the two before. kind: what
sort of token; kind_before: of the one before. start: what begins with it. ending: its last letters. inside: what it is
enclosed in. language: what the text around it is written in."""

Column = NDArray[np.int32]

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*['’]?")
_OPENING, _CLOSING, _QUOTES = "([{⟨", ")]}⟩", '"“”«»„'
_SENTENCE_END = re.compile(r"[.!?…][\"”»')\]]*\s*$")
ENDING_LETTERS = 3


class Words:
    """Numbers for texts, in the order in which they are met; 0 is for none."""

    def __init__(self) -> None:
        self.texts: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        """The number of a text."""
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found


class Describer:
    """Turns the texts of a sequence's tokens into columns."""

    def __init__(self, separator: str) -> None:
        """``separator`` is the text of the token in front of every document."""
        self.separator = separator
        self.words = {name: Words() for name in COLUMNS}
        for name in NAMES[1:]:
            self.words["language"].number(name)
        self._telltales = telltale_lookup()

    def columns(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """[C, L]: what can be said of each token of one sequence."""
        starts = np.cumsum([0, *(len(text) for text in texts)])
        whole = "".join(texts)
        words = self._words_at(whole, starts)
        kinds = [kind_of(text, word) for text, word in zip(texts, words, strict=True)]
        parts = [piece.strip(" ").lower() or piece for piece in texts]
        told: dict[str, list[str]] = {
            "token": list(texts),
            "word": words,
            "before": ["", *parts[:-1]],
            "before_two": ["", "", *("".join(pair).strip().lower() for pair in pairwise(texts))],
            "kind": kinds,
            "kind_before": ["", *kinds[:-1]],
            "start": self._starts(texts),
            "ending": [_ending(text) for text in texts],
            "inside": _insides(texts),
        }
        rows = [self._numbers(name, values[: len(texts)]) for name, values in told.items()]
        return np.stack([*rows, surroundings(self._telltale_hits(whole, starts))])

    def _numbers(self, name: str, values: Sequence[str]) -> Column:
        number = self.words[name].number
        return np.fromiter((number(value) for value in values), np.int32, len(values))

    def _words_at(self, whole: str, starts: NDArray[np.int64]) -> list[str]:
        """The word that each token is in or begins, in small letters."""
        words = [""] * (len(starts) - 1)
        for found in _WORD.finditer(whole):
            first = int(np.searchsorted(starts, found.start(), side="right")) - 1
            last = int(np.searchsorted(starts, found.end(), side="left"))
            for place in range(first, min(last, len(words))):
                words[place] = words[place] or found.group().lower()
        return words

    def _starts(self, texts: Sequence[str]) -> list[str]:
        told, before = [], ""
        for text in texts:
            if before == self.separator:
                told.append("the start of a text")
            elif before.rstrip(" \t").endswith("\n") and text.strip():
                told.append("the start of a line")
            elif _SENTENCE_END.search(before) and text.strip() and not text.strip()[0].islower():
                told.append("the start of a sentence")
            else:
                told.append("")
            before = text if text.strip(" ") or not before.endswith("\n") else before
        return told

    def _telltale_hits(self, whole: str, starts: NDArray[np.int64]) -> NDArray[np.int32]:
        hits = np.zeros((len(starts) - 1, len(NAMES)), np.int32)
        for found in re.finditer(r"#?\w+=?|[^\w\s]{2,}", whole):
            for number in self._telltales.get(found.group(), ()):
                hits[int(np.searchsorted(starts, found.start(), side="right")) - 1, number] += 1
        return hits


def kind_of(text: str, word: str) -> str:
    """What sort of token it is, in the plural."""
    body = text.strip(" ")
    if not body:
        return "spaces" if text else ""
    if not body.strip():
        return "line breaks"
    if body.isdigit():
        return "numbers"
    if body[0].isalpha():
        return _kind_of_word(text, body, word)
    for kind, signs in (("opening brackets", _OPENING), ("closing brackets", _CLOSING), ("quotation marks", _QUOTES)):
        if body[0] in signs:
            return kind
    return "punctuation" if unicodedata.category(body[0]).startswith("P") else "signs"


def _kind_of_word(text: str, body: str, word: str) -> str:
    lowered = body.lower()
    begins = word.startswith(lowered) and (text[0] == " " or lowered == word or body[0].isupper())
    if not begins:
        return "word endings" if word.endswith(lowered) else "middles of words"
    if body.isupper():
        return "capital letters" if len(body) == 1 else "words in capitals"
    if body[0].isupper():
        return "capitalised words" if lowered == word else "beginnings of capitalised words"
    return "words" if lowered == word else "beginnings of words"


def _ending(text: str) -> str:
    body = text.strip()
    return body[-ENDING_LETTERS:].lower() if body.isalpha() and len(body) > ENDING_LETTERS else ""


def _insides(texts: Sequence[str]) -> list[str]:
    """What each token is enclosed in, from what stands before it in its line."""
    told, depth, quoted = [], 0, False
    for text in texts:
        told.append("quotation marks" if quoted else "brackets" if depth else "")
        if "\n" in text:
            depth, quoted = 0, False
        for character in text:
            depth = max(0, depth + (character in _OPENING) - (character in _CLOSING))
            quoted = quoted != (character in _QUOTES)
    return told
