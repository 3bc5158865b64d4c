"""Results of a comparison of runs: which experts were found again in which other runs."""

from __future__ import annotations

from dataclasses import dataclass

from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.printable import ShortRepr


@dataclass(frozen=True)
class Match:
    """The expert of another run that is most similar to an expert."""

    run: str
    expert: int
    firing_cosine: float
    """Cosine of the two experts' gate activations over the text."""
    writing_cosine: float
    """Cosine of their mean outputs."""
    firing_low: float
    """Lower end of the 95 % interval of the cosine of gate activations, over sequences."""
    firing_high: float
    firing_chance: float
    """Chance level of the cosine of gate activations, for experts with as many active tokens."""
    writing_chance: float
    """Chance level of the cosine of mean outputs."""
    mutual: bool
    """True if this expert is also the best match of that one."""

    @property
    def above_chance(self) -> bool:
        """True if both cosines exceed the chance level."""
        return self.firing_cosine > self.firing_chance and self.writing_cosine > self.writing_chance

    @property
    def found(self) -> bool:
        """True if the expert was found again in the other run."""
        return self.above_chance and self.mutual


@dataclass(frozen=True)
class ExpertRecurrence:
    """An expert with enough active tokens, and its match in each other run."""

    expert: int
    active_tokens: int
    matches: tuple[Match, ...]

    @property
    def found_in(self) -> int:
        """Number of other runs in which the expert was found again."""
        return sum(match.found for match in self.matches)


@dataclass(frozen=True)
class RunRecurrence:
    """Summary of the comparison with one other run."""

    run: str
    found_again: Interval
    """Share of the measured experts that were found again; the interval is over experts."""
    above_chance: float
    """Share whose best match is above chance, mutual or not."""
    chance: float
    """Share found again if the other run's gate activations are shifted along the text."""
    firing_cosine: float
    """Median over the measured experts of the best cosine of gate activations."""
    chance_firing_cosine: float
    """The same after the shift."""
    writing_cosine: float
    """Median cosine of the mean outputs of matched experts."""
    chance_writing_cosine: float
    """Median cosine of the mean outputs of random pairs."""


@dataclass(frozen=True, repr=False)
class Recurrence(ShortRepr):
    """Result of ``mxd recurrence``."""

    run: str
    num_experts: int
    tokens: int
    min_tokens: int
    """Experts with fewer active tokens were not measured."""
    runs: tuple[RunRecurrence, ...]
    found_in_all: Interval
    """Share of the measured experts that were found again in every other run."""
    experts: tuple[ExpertRecurrence, ...]
    """The measured experts, by number."""
