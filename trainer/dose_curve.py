"""What comes of one edit at several strengths, as ``dose`` measures it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DoseProgress:
    """More has been written."""

    tokens: int
    of: int
    """At most."""


@dataclass(frozen=True)
class DosePoint:
    """What one strength did."""

    strength: float
    kl: float
    lift: float
    loss: float
    text: str
    """The first of the steered texts."""


@dataclass(frozen=True)
class DoseCurve:
    """All strengths, in ascending order."""

    points: tuple[DosePoint, ...]
    default_loss: float
    """Of the language model's own texts, in nats a token."""
    default_text: str
    suggested: float | None
    promoted: tuple[str, ...]
    """Tokens that the expert by itself makes more likely after the prompt, most of all first."""
    seconds: float


DoseStep = DoseProgress | DoseCurve
