"""The words of one language model's tokenizer, as they stand on screen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from trainer.tokens import decoded_one_by_one, token_bytes, token_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PREFIX_LENGTH = 3
"""Shorter searches must equal a token; a single letter would begin half of the vocabulary."""


def fold(text: str) -> str:
    """A text as searches compare it: no case, no spaces around it, drawn or real."""
    return text.replace("␣", " ").strip().casefold()


def _text_of(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None


class Vocabulary:
    """Texts of tokens: in sequences, by themselves, and by what a person types."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._names: dict[int, str] = {}

    @cached_property
    def _bytes(self) -> list[bytes]:
        """What each token adds wherever it stands; empty where that depends on the one before."""
        return token_bytes(self._tokenizer) or []

    @cached_property
    def _whole(self) -> list[str | None]:
        """The same as text; None for parts of characters."""
        return [_text_of(piece) for piece in self._bytes]

    def texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Texts of a sequence of tokens; empty where a character continues in the next token."""
        if not self._whole:
            return tuple(token_texts(self._tokenizer, ids))
        known = len(self._whole)
        found = [self._whole[token] if token < known else None for token in ids]
        parts = [place for place, text in enumerate(found) if text is None]
        stop = 0
        for start in parts:
            if start < stop:
                continue
            # Parts of a character, and the next whole token: what is left unfinished shows before its text.
            stop = next((at for at in range(start, len(ids)) if found[at] is not None), len(ids) - 1) + 1
            found[start:stop] = self._parts(ids[start:stop])
        return tuple(map(str, found))

    def _parts(self, ids: Sequence[int]) -> list[str]:
        if max(ids) >= len(self._bytes):  # ids without a token
            return token_texts(self._tokenizer, ids)
        return decoded_one_by_one(self._bytes[token] for token in ids)

    def name(self, token: int) -> str:
        """Text of a token by itself; its raw name where it is only a part of a character."""
        if token not in self._names:
            self._names[token] = self._name(token)
        return self._names[token]

    def names(self, tokens: Iterable[int]) -> list[str]:
        """The same of several."""
        known = self._names
        return [known.get(token) or self.name(token) for token in tokens]

    def _name(self, token: int) -> str:
        text = self.texts([token])[0]
        if text and "\N{REPLACEMENT CHARACTER}" not in text:
            return text
        return str(self._tokenizer.convert_ids_to_tokens(token) or f"#{token}")

    @cached_property
    def _by_text(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for token in range(len(self._tokenizer)):
            found.setdefault(fold(self.name(token)), []).append(token)
        return found

    @cached_property
    def _alphabet(self) -> list[str]:
        return sorted(self._by_text)

    def equal(self, text: str) -> list[int]:
        """Tokens whose text is ``text``, whatever its case and the spaces around it."""
        return list(self._by_text.get(fold(text), []))

    def matching(self, text: str) -> list[int]:
        """Tokens whose text is ``text`` or, from three letters on, begins with it; the equal ones first."""
        wanted = fold(text)
        if not wanted:
            return []
        equal = self._by_text.get(wanted, [])
        if len(wanted) < PREFIX_LENGTH:
            return list(equal)
        first = bisect_right(self._alphabet, wanted)
        longer = takewhile(lambda other: other.startswith(wanted), islice(self._alphabet, first, None))
        return [*equal, *(token for other in longer for token in self._by_text[other])]
