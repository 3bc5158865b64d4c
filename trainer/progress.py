"""How long work tells how far it is, and learns that it should stop. What it looks like is the caller's business."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called as work goes on."""

    def __call__(self, done: int, total: int, note: str) -> None:
        """``done`` of ``total`` tokens; ``note`` is a few words or figures to show beside them."""


class ShouldStop(Protocol):
    """Asked between steps; once true, the work saves what it has and returns."""

    def __call__(self) -> bool: ...


def silent(done: int, total: int, note: str) -> None:
    """Show nothing."""


def never() -> bool:
    """Never stop early."""
    return False
