"""The words of one language model's tokenizer, as they stand on screen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from transformers import PreTrainedTokenizerBase

from trainer.tokens import token_texts

PREFIX_LENGTH = 3
"""Shorter searches must equal a token; a single letter would begin half of the vocabulary."""


def fold(text: str) -> str:
    """A text as searches compare it: no case, no spaces around it, drawn or real."""
    return text.replace("␣", " ").strip().casefold()


class Vocabulary:
    """Texts of tokens: in sequences, by themselves, and by what a person types."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._names: dict[int, str] = {}

    def texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Texts of a sequence of tokens; empty where a character continues in the next token."""
        return tuple(token_texts(self._tokenizer, ids))

    def name(self, token: int) -> str:
        """Text of a token by itself; its raw name where it is only a part of a character."""
        if token not in self._names:
            self._names[token] = self._name(token)
        return self._names[token]

    def _name(self, token: int) -> str:
        text = token_texts(self._tokenizer, [token])[0]
        if text and "\N{REPLACEMENT CHARACTER}" not in text:
            return text
        return str(self._tokenizer.convert_ids_to_tokens(token) or f"#{token}")

    @cached_property
    def _by_text(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for token in range(len(self._tokenizer)):
            found.setdefault(fold(self.name(token)), []).append(token)
        return found

    def matching(self, text: str) -> list[int]:
        """Tokens whose text is ``text`` or, from three letters on, begins with it; the equal ones first."""
        wanted = fold(text)
        if not wanted:
            return []
        equal = self._by_text.get(wanted, [])
        if len(wanted) < PREFIX_LENGTH:
            return list(equal)
        longer = [ids for other, ids in self._by_text.items() if other.startswith(wanted) and other != wanted]
        return [*equal, *(token for ids in longer for token in ids)]
