"""Two runs beside each other, expert by expert. What the runs are, they say themselves."""

from __future__ import annotations

from typing import Literal

from backend.schemas.base import Schema
from backend.schemas.experts import AutomaticLabel

MatchedBy = Literal["gate", "tokens"]


class ComparedExpert(Schema):
    """What a reader needs to tell what an expert is about."""

    expert: int
    label: str | None
    automatic: AutomaticLabel | None
    usage: float
    """Share of indexed tokens on which it is active."""
    top_tokens: tuple[str, ...]
    """Texts of the few that it is active on most often."""


class MatchedPair(Schema):
    """An expert with the most similar one of the other run."""

    one: ComparedExpert
    other: ComparedExpert
    cosine: float
    """-1 to 1."""
    mutual: bool
    """Whether it is also the most similar one to the other, among all active ones of its run."""


class RunComparison(Schema):
    run: str
    other: str
    by: MatchedBy
    """gate: cosine of gate directions (rows of G), where both read the same. tokens: cosine of how the tokens that each
    is active on most often are spread, where their gates read something else."""
    active: int
    """Active experts of the run, of which the most used are matched."""
    other_active: int
    """Active experts of the other run, all of which are looked through."""
    mutual_share: float
    """Of the pairs."""
    median_cosine: float
    chance_cosine: float
    """The median cosine with the nearest where every number that describes an expert of the other run (of an input, or
    a token's share) is dealt to one of them at random."""
    pairs: tuple[MatchedPair, ...]
    """The most used experts of the run, the most used first."""
