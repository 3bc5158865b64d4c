"""Ablation and amplification effects of an expert."""

from __future__ import annotations

from mxd.backend.schemas.base import Schema
from mxd.trainer.analysis.results import ExpertWrites, TokenEffect


class Ablation(Schema):
    """Effects on an expert's own examples, weighted to represent all its active tokens."""

    examples: int
    """Number of examples measured."""
    loss_increase: float | None
    """Increase of the next-token loss when the expert is ablated, in nats; null if no example has a next token."""
    kl_ablated: float
    """KL divergence from the original next-token distribution with the expert ablated, in nats."""
    kl_amplified: float
    """KL divergence with the expert's activation raised by its 99th percentile."""
    kl_random_expert: float
    """KL divergence with a random expert of similar density raised by its own 99th percentile, on the same tokens."""
    kl_random_direction: float
    """KL divergence with a random direction added, of the same norm as in ``kl_amplified``."""
    random_expert: int
    """Id of the random expert of similar density."""
    random_loss_increase: float | None
    """Loss increase of the random expert, on its own examples."""
    output_share: float
    """Share of the summed norms of all active experts' outputs."""
    random_output_share: float | None
    """Output share of the random expert, on its own examples."""
    input_dependence: float
    """Share of the expert's output that lies outside its mean direction."""
    promoted: tuple[TokenEffect, ...]
    """Tokens that the mean output promotes through final norm and unembedding, largest change first."""
    suppressed: tuple[TokenEffect, ...]
    """Tokens that it suppresses, most negative change first."""


class ExpertAblation(Schema):
    """Measured effects of an expert."""

    ablation: Ablation | None
    """Null if not measured."""
    command: str
    """Command that measures it."""


class WritesResponse(Schema):
    """What an expert writes, computed on its strongest examples, beside a random expert of similar density."""

    writes: ExpertWrites
    random: ExpertWrites | None
    """Null if no other expert is active."""
    exceeds_random: bool
    """Whether its largest rise of a log-probability is at least twice the random expert's."""
    took_ms: float
