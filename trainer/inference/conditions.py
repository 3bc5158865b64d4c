"""Conditions of edits on a growing text: the share of an edit's effect at a position, and tests of gate activations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mxd.trainer.config.conditions import Condition


class GateCheck(NamedTuple):
    """A gate test with its level as a gate activation: it holds if (activation > level) equals ``is_above``."""

    expert: int
    level: float
    is_above: bool
    block: int | None = None
    """Block of the expert's layer; None for the edited block."""


@dataclass(eq=False)
class TextProgress:
    """Position of the prompt's end in a text, and of the stop texts that have been generated."""

    prompt_tokens: int = 0
    stop_texts: frozenset[str] = frozenset()
    """Texts that end edits."""
    ended: dict[str, int] = field(default_factory=dict)
    """Stop text -> position of the token that completed it."""

    def note(self, generated: str, position: int) -> None:
        """Record the stop texts that the token at ``position`` has completed in the generated text."""
        for text in self.stop_texts:
            if text not in self.ended and text in generated:
                self.ended[text] = position


def effect_share(condition: Condition | None, progress: TextProgress, position: int) -> float:
    """Share of an edit's full effect at a position, 0 to 1, by all parts of its condition except gate tests."""
    if condition is None:
        return 1.0
    number = position - progress.prompt_tokens + 1  # 1 for the first generated token
    if not _applies(condition, progress, position, number):
        return 0.0
    share = 1.0
    if condition.ramp is not None:
        share *= min(max(number, 0) / condition.ramp, 1.0)
    if condition.fade is not None:
        share *= max(1.0 - max(number - 1, 0) / condition.fade, 0.0)
    return share


def _applies(condition: Condition, progress: TextProgress, position: int, number: int) -> bool:
    if condition.scope == ("prompt" if number >= 1 else "generated"):
        return False
    if condition.first is not None and not 1 <= number <= condition.first:
        return False
    return condition.until is None or position < progress.ended.get(condition.until, position + 1)
