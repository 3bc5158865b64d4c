"""Texts without their stop sequences, as pieces that can be sent while they grow."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from mxd.backend.schemas.openai import FinishReason, Usage
from mxd.trainer.inference.results import DoneEvent, StartEvent, TokenEvent


class Piece(NamedTuple):
    """Characters that a text gains; the last piece has the reason why it ended."""

    sample: int
    text: str
    reason: FinishReason | None


class StopFilter:
    """Passes a growing text on up to its first stop sequence, and holds back what may be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""

    def push(self, text: str) -> str:
        """Return the characters that are certain not to belong to a stop sequence."""
        self._held += text
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        end = min(places) if places else len(self._held) - self._open_length()
        passed, self._held = self._held[:end], self._held[end:]
        return passed

    def flush(self) -> str:
        """Return the characters that were held back, at the end of a text without a stop sequence."""
        pending, self._held = self._held, ""
        return pending

    def _open_length(self) -> int:
        """Length of the longest end of the text that a stop sequence begins with."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        lengths = range(min(longest, len(self._held)), 0, -1)
        return next((size for size in lengths if any(stop.startswith(self._held[-size:]) for stop in self._stops)), 0)


class TextPieces:
    """Turns the events of a generation into pieces, and counts tokens."""

    def __init__(self, stops: Sequence[str], samples: int) -> None:
        self._filters = [StopFilter(stops) for _ in range(samples)]
        self._prompt_tokens = self._new_tokens = 0

    @property
    def usage(self) -> Usage:
        """Numbers of tokens so far."""
        total = self._prompt_tokens + self._new_tokens
        return Usage(prompt_tokens=self._prompt_tokens, completion_tokens=self._new_tokens, total_tokens=total)

    async def read(self, steps: AsyncGenerator[Sequence[Any], None]) -> AsyncGenerator[list[Piece], None]:
        """Yield the pieces of each step; closes ``steps`` at the end."""
        async with aclosing(steps):
            async for together in steps:
                pieces = [piece for step in together if (piece := self._piece(step)) is not None]
                yield [piece for piece in pieces if piece.text or piece.reason]

    def _piece(self, step: Any) -> Piece | None:
        if isinstance(step, StartEvent):
            self._prompt_tokens = step.prompt_tokens
        elif isinstance(step, DoneEvent):
            self._new_tokens = step.tokens
        elif isinstance(step, TokenEvent):
            return self._of_token(step)
        return None

    def _of_token(self, token: TokenEvent) -> Piece:
        stops = self._filters[token.sample]
        if token.reason == "end-of-text":  # the token that ends the text is not part of it
            return Piece(token.sample, stops.flush(), "stop")
        text = stops.push(token.text)
        if token.reason == "length":
            return Piece(token.sample, text + stops.flush(), "length")
        return Piece(token.sample, text, token.reason)
