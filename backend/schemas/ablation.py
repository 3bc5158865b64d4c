"""Ablation and amplification effects of an expert, and the expert as a linear map."""

from __future__ import annotations

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.routing import TokenEffect


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


class OutputDimension(Schema):
    """One entry of an expert's output scaling."""

    dimension: int
    """Index of the output dimension."""
    scaling: float
    """Scaling c_n at this dimension."""
    relative: float
    """Scaling in units of the root mean square over all experts at this dimension."""


class SingularDirection(Schema):
    """An output direction of an expert, with either sign."""

    share: float
    """Share of the squared singular values of the expert's matrix."""
    positive_tokens: tuple[TokenEffect, ...]
    """Tokens with the largest logits above the mean when the direction is added."""
    negative_tokens: tuple[TokenEffect, ...]
    """Tokens with the largest logits when it is subtracted."""


class ExpertMap(Schema):
    """An expert as a linear map, from its weights alone."""

    stable_rank: float
    """Squared Frobenius norm divided by squared spectral norm; 1 for a single output direction."""
    directions: tuple[SingularDirection, ...]
    """Largest output directions."""
    largest_scalings: tuple[OutputDimension, ...]
    """Output dimensions with the largest scaling. Empty if experts have no output scaling."""
    smallest_scalings: tuple[OutputDimension, ...]
    """Output dimensions with the smallest scaling. Empty if experts have no output scaling."""
    small_scaling_share: float | None
    """Share of output dimensions scaled by less than a tenth of their root mean square."""
