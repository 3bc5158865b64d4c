"""The text of a generation, token by token as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.tokens import REPLACEMENT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class TokenStream:
    """Turns ids that come one at a time into the characters that each adds.

    Keeps back a character until its last byte has come. Costs the same for every token: only the ids since the last
    finished piece of text, and those of the piece before it, are decoded again.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, before: list[int]) -> None:
        """``before`` are the ids of the text that is continued; they decide about a first leading space."""
        self._tokenizer = tokenizer
        self._ids = list(before[-4:])
        self._done = len(self._ids)
        self._start = 0

    def push(self, token: int) -> str:
        """The characters that ``token`` adds; empty while a character is unfinished."""
        self._ids.append(token)
        known = self._decode(self._ids[self._start : self._done])
        text = self._decode(self._ids[self._start :])
        if text.endswith(REPLACEMENT) and len(self._ids) - self._done < 4:
            return ""
        self._start, self._done = self._done, len(self._ids)
        return text[len(known) :]

    def _decode(self, ids: list[int]) -> str:
        text = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text
