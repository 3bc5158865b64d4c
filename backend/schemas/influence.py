"""What an expert does and how much it matters."""

from __future__ import annotations

from backend.schemas.base import Schema
from backend.schemas.routing import TokenEffect


class Influence(Schema):
    """Measured on the expert's own contexts, weighted to stand for all its active tokens."""

    contexts: int
    added_loss: float | None
    """Nats, of the next token, with the expert alone switched off; null where no context has a next token."""
    kl_off: float
    """Nats of KL from the untouched next-token distribution."""
    kl_up: float
    """With its coefficient raised by its 99th percentile."""
    kl_other: float
    """With a random expert of the same usage raised by its own, on the same tokens."""
    kl_direction: float
    """With a random direction as long as what was added for ``kl_up``."""
    other: int
    """The random expert of the same usage."""
    other_added_loss: float | None
    """Its own added loss, on its own contexts."""
    output_share: float
    """Of the summed norms of what all active experts add."""
    other_output_share: float | None
    """The random expert's, on its own contexts."""
    input_dependence: float
    promoted: tuple[TokenEffect, ...]
    """By its contribution, read by final norm and unembedding, on average; largest change first."""
    suppressed: tuple[TokenEffect, ...]


class ExpertInfluence(Schema):
    influence: Influence | None
    """Null where it has not been measured."""
    command: str
    """What measures it."""


class OutputDimension(Schema):
    """An entry of an expert's scaling."""

    dimension: int
    scaling: float
    relative: float
    """In units of the root mean square over all experts of that dimension."""


class SingularDirection(Schema):
    """Something that the expert writes more or less of, with either sign."""

    share: float
    """Of the squared singular values of its matrix."""
    one_end: tuple[TokenEffect, ...]
    """Tokens by logit above the mean, as final norm and unembedding read the direction."""
    other_end: tuple[TokenEffect, ...]


class ExpertMap(Schema):
    """An expert as the linear map that it is, from its weights alone."""

    stable_rank: float
    """1 for a map that writes one direction."""
    directions: tuple[SingularDirection, ...]
    opened: tuple[OutputDimension, ...]
    """Output dimensions that it scales most …"""
    closed: tuple[OutputDimension, ...]
    """… and least; none where experts are not scaled by output."""
    closed_share: float | None
    """Of all output dimensions, scaled by less than a tenth of what is usual there."""
