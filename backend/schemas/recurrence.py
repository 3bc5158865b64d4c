"""Recurrence of an expert in other runs of its layer."""

from __future__ import annotations

from mxd.backend.schemas.base import Schema


class RecurrenceMatch(Schema):
    """The most similar expert of another run of the same layer, such as another seed."""

    run: str
    """Name of the other run."""
    expert: int
    """Expert of the other run."""
    is_indexed: bool
    """True if the other run is in this database, with an index."""
    is_found: bool
    """True if both cosines are above chance and neither expert has a better match."""
    mutual: bool
    """True if the other expert has no better match in this run."""
    firing_cosine: float
    """Cosine of the gate activations of both experts over a text."""
    firing_low: float
    """Lower end of its 95 % interval, over sequences."""
    firing_high: float
    """Upper end of its 95 % interval."""
    firing_chance: float
    """Chance level: 99th percentile of shuffled experts with as many active tokens."""
    writing_cosine: float
    """Cosine of the mean outputs of both experts."""
    writing_chance: float
    """Chance level: 95th percentile of random pairs."""


class ExpertRecurrence(Schema):
    """Comparison of an expert with other runs, by ``mxd recurrence``."""

    text: str
    """Name of the dataset on which the runs were compared."""
    tokens: int
    """Number of tokens that were read."""
    min_tokens: int
    """Number of active tokens below which an expert was not measured."""
    matches: tuple[RecurrenceMatch, ...]
    """One per other run, by name; empty if the expert was active on too few tokens."""
