"""What comes of a generation: step by step as it is made, or as whole texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainer.highlighting import MORE, Shaded, rows, shaded_text

if TYPE_CHECKING:
    from trainer.comparison import Alternative
    from trainer.routing import RoutedExpert

Arm = Literal["default", "steered"]
Reason = Literal["length", "stop", "end-of-text"]

ARMS: tuple[Arm, Arm] = ("default", "steered")
SHADED_NATS = 4.0
"""Change of log p that has the strongest shade in a notebook."""


@dataclass(frozen=True)
class Started:
    """The prompt has been read."""

    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True)
class NewToken:
    """One new token of one arm."""

    arm: Arm
    sample: int
    position: int
    """0 for the first."""
    id: int
    text: str
    """New characters; empty where a character continues in the next token."""
    probability: float
    """Under the arm that chose it, before temperature and the like."""
    delta_log_probability: float
    """log p with the edits − log p without, for this token after this very text, in nats."""
    kl: float
    """KL from this arm's next-token distribution to the other's, after this very text, in nats."""
    alternatives: tuple[Alternative, ...]
    other_alternatives: tuple[Alternative, ...]
    experts: tuple[RoutedExpert, ...]
    """Routing, in the run that is steered, of the token before, which chose this one; edits not counted."""


@dataclass(frozen=True)
class Done:
    """Every continuation has ended."""

    default_reason: Reason
    """Of the first sample."""
    steered_reason: Reason
    tokens: int
    """New tokens of all continuations."""
    seconds: float


SteeringStep = Started | NewToken | Done


class SteeredGeneration(Iterator[SteeringStep]):
    """A generation that is made as it is read: step by step, or all of it by asking for its texts."""

    def __init__(self, prompt: str, steps: Iterator[SteeringStep]) -> None:
        self.prompt = prompt
        self._steps = steps
        self._tokens: list[NewToken] = []

    def __next__(self) -> SteeringStep:
        step = next(self._steps)
        if isinstance(step, NewToken):
            self._tokens.append(step)
        return step

    def tokens(self, arm: Arm, sample: int = 0) -> tuple[NewToken, ...]:
        """The new tokens of one text; what has not been generated yet is generated now."""
        for _ in self:
            pass
        return tuple(token for token in self._tokens if (token.arm, token.sample) == (arm, sample))

    def text(self, arm: Arm, sample: int = 0) -> str:
        """One text without the prompt; what has not been generated yet is generated now."""
        return "".join(token.text for token in self.tokens(arm, sample))

    def _repr_html_(self) -> str:
        """Both texts of every sample, their tokens shaded by how much the edits changed their probability."""
        prompt = shaded_text([Shaded(self.prompt, 0.0)])
        samples = max((token.sample for token in (*self.tokens("default"), *self._tokens)), default=-1) + 1
        lines = [(arm, prompt + self._shaded(arm, sample)) for sample in range(samples) for arm in ARMS]
        return rows(("", "green: more probable with the edits, purple: less"), lines)

    def _shaded(self, arm: Arm, sample: int) -> str:
        tokens = self.tokens(arm, sample)
        return shaded_text(
            [
                Shaded(it.text, it.delta_log_probability / SHADED_NATS, f"Δ log p {it.delta_log_probability:+.3f}")
                for it in tokens
            ],
            MORE,
        )
