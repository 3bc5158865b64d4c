"""Events of a steered generation and of a strength sweep: one by one, or as whole texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mxd.trainer.utils.html import HIGHER, ShadedToken, html_table, shaded_text

if TYPE_CHECKING:
    from mxd.trainer.inference.routing import RoutedExpert
    from mxd.trainer.inference.sampling import Alternative
Variant = Literal["baseline", "steered"]
Reason = Literal["length", "stop", "end-of-text"]
VARIANTS: tuple[Variant, Variant] = ("baseline", "steered")
SHADED_NATS = 4.0
"""Change of the log-probability that gets the strongest shade in a notebook."""


@dataclass(frozen=True)
class Started:
    """The prompt has been computed."""

    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True)
class NewToken:
    """One new token of one variant."""

    variant: Variant
    sample: int
    position: int
    """Index among the new tokens, from 0."""
    id: int
    text: str
    """New characters; empty if a character continues in the next token."""
    probability: float
    """Probability under the token's own variant, before temperature and other sampling settings."""
    delta_log_probability: float
    """Log-probability with the edits minus without, for this token after the same text, in nats."""
    kl: float
    """KL divergence from this variant's next-token distribution to the other's after the same text, in nats."""
    alternatives: tuple[Alternative, ...]
    """Most probable tokens under this variant."""
    other_alternatives: tuple[Alternative, ...]
    """Most probable tokens under the other variant."""
    experts: tuple[RoutedExpert, ...]
    """Active experts of the steered run on the previous token, which predicts this one; before edits."""
    reason: Reason | None = None
    """Reason why the text ended with this token; None while it grows."""


@dataclass(frozen=True)
class Done:
    """Every text has ended."""

    baseline_reason: Reason
    """Reason why the first baseline sample ended."""
    steered_reason: Reason
    """Reason why the first steered sample ended."""
    tokens: int
    """Number of new tokens of all texts."""
    seconds: float


SteeringStep = Started | NewToken | Done


class SteeredGeneration(Iterator[SteeringStep]):
    """A lazy generation: iterate over its events, or ask for its texts to run it to the end."""

    def __init__(self, prompt: str, steps: Iterator[SteeringStep]) -> None:
        self.prompt = prompt
        self._steps = steps
        self._tokens: list[NewToken] = []

    def __next__(self) -> SteeringStep:
        step = next(self._steps)
        if isinstance(step, NewToken):
            self._tokens.append(step)
        return step

    def tokens(self, variant: Variant, sample: int = 0) -> tuple[NewToken, ...]:
        """New tokens of one text; runs the generation to its end."""
        for _ in self:
            pass
        return tuple(token for token in self._tokens if (token.variant, token.sample) == (variant, sample))

    def text(self, variant: Variant, sample: int = 0) -> str:
        """One text without the prompt; runs the generation to its end."""
        return "".join(token.text for token in self.tokens(variant, sample))

    def _repr_html_(self) -> str:
        """Both texts of every sample, with tokens shaded by the change of their log-probability."""
        prompt = shaded_text([ShadedToken(self.prompt, 0.0)])
        samples = max((token.sample for token in (*self.tokens("baseline"), *self._tokens)), default=-1) + 1
        lines = [(variant, prompt + self._shaded(variant, i)) for i in range(samples) for variant in VARIANTS]
        return html_table(("", "green: more probable with the edits, purple: less"), lines)

    def _shaded(self, variant: Variant, sample: int) -> str:
        changes = [(token.text, token.delta_log_probability) for token in self.tokens(variant, sample)]
        tokens = [ShadedToken(text, change / SHADED_NATS, f"Δ log p {change:+.3f}") for text, change in changes]
        return shaded_text(tokens, HIGHER)


@dataclass(frozen=True)
class DoseProgress:
    """Progress of a strength sweep."""

    tokens: int
    """Number of new tokens of all texts so far."""
    total: int
    """Largest number of new tokens of all texts."""


@dataclass(frozen=True)
class DosePoint:
    """Effect of one strength; see ``strength_sweep`` for the measures."""

    strength: float
    kl: float
    lift: float
    loss: float
    text: str
    """First steered sample."""


@dataclass(frozen=True)
class DoseCurve:
    """Effects of all strengths, in ascending order."""

    points: tuple[DosePoint, ...]
    baseline_loss: float
    """Loss of the baseline texts under the original model, in nats per token."""
    baseline_text: str
    """First baseline sample."""
    suggested: float | None
    """Suggested strength; None if no strength has a visible effect and still gives fluent text."""
    promoted: tuple[str, ...]
    """Tokens that the expert alone makes more probable after the prompt, strongest first."""
    seconds: float


DoseStep = DoseProgress | DoseCurve
