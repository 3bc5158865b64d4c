"""Texts of the tokens of one tokenizer, and lookup of tokens by text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from mxd.trainer.language_model.tokenizer import decode_each, token_bytes, token_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MIN_PREFIX_LENGTH = 3
"""Shorter searches must match a token exactly; a single letter would be a prefix of half of the vocabulary."""


def fold(text: str) -> str:
    """Normalise a text for searches: no case, no surrounding spaces, neither real nor drawn ones."""
    return text.replace("␣", " ").strip().casefold()


def _decode(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None


def _with_hex_bytes(piece: bytes) -> str:
    """Decode what is UTF-8; write other bytes as SentencePiece names them, for example ``<0xF0><0x9F>``."""
    escaped = piece.decode("utf-8", "surrogateescape")  # byte 0xNN becomes U+DCNN
    return "".join(f"<0x{ord(char) - 0xDC00:02X}>" if "\udc80" <= char <= "\udcff" else char for char in escaped)


class Vocabulary:
    """Texts of tokens, in sequences and alone, and tokens by their text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._names: dict[int, str] = {}

    @cached_property
    def _bytes(self) -> list[bytes]:
        """Bytes of each token; an empty list if the text of a token depends on the previous one."""
        return token_bytes(self._tokenizer) or []

    @cached_property
    def _texts(self) -> list[str | None]:
        """Text of each token; None for parts of characters."""
        return [_decode(piece) for piece in self._bytes]

    def texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Texts of a sequence of tokens; empty for a token whose character continues in the next one."""
        if not self._texts:
            return tuple(token_texts(self._tokenizer, ids))
        size = len(self._texts)
        texts = [self._texts[token] if token < size else None for token in ids]
        parts = [index for index, text in enumerate(texts) if text is None]
        stop = 0
        for start in parts:
            if start < stop:
                continue
            # Decode parts of characters with the next complete token, before which unfinished characters are written.
            stop = next((index for index in range(start, len(ids)) if texts[index] is not None), len(ids) - 1) + 1
            texts[start:stop] = self._decode_parts(ids[start:stop])
        return tuple(map(str, texts))

    def _decode_parts(self, ids: Sequence[int]) -> list[str]:
        if max(ids) >= len(self._bytes):  # ids without a token
            return token_texts(self._tokenizer, ids)
        return decode_each(self._bytes[token] for token in ids)

    def name(self, token: int) -> str:
        """Text of a token alone; parts of characters are written as bytes, for example ``<0xF0><0x9F>``."""
        if token not in self._names:
            self._names[token] = self._name(token)
        return self._names[token]

    def names(self, tokens: Iterable[int]) -> list[str]:
        """``name`` of several tokens."""
        cache = self._names
        return [cache.get(token) or self.name(token) for token in tokens]

    def _name(self, token: int) -> str:
        text = self.texts([token])[0]
        if text and "\N{REPLACEMENT CHARACTER}" not in text:
            return text
        if token < len(self._bytes) and self._bytes[token]:
            return _with_hex_bytes(self._bytes[token])
        return str(self._tokenizer.convert_ids_to_tokens(token) or f"#{token}")

    @cached_property
    def _tokens_by_text(self) -> dict[str, list[int]]:
        tokens: dict[str, list[int]] = {}
        for token in sorted(set(self._tokenizer.get_vocab().values())):  # ids may have gaps
            tokens.setdefault(fold(self.name(token)), []).append(token)
        return tokens

    @cached_property
    def _sorted_texts(self) -> list[str]:
        return sorted(self._tokens_by_text)

    def exact_matches(self, text: str) -> list[int]:
        """Tokens whose text is ``text``, ignoring case and surrounding spaces."""
        return list(self._tokens_by_text.get(fold(text), []))

    def prefix_matches(self, text: str) -> list[int]:
        """Tokens whose text is ``text`` or, from three letters on, starts with it; exact matches first."""
        query = fold(text)
        if not query:
            return []
        exact = self._tokens_by_text.get(query, [])
        if len(query) < MIN_PREFIX_LENGTH:
            return list(exact)
        first = bisect_right(self._sorted_texts, query)
        longer = takewhile(lambda other: other.startswith(query), islice(self._sorted_texts, first, None))
        return [*exact, *(token for other in longer for token in self._tokens_by_text[other])]
