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
    input_dependence: float
    promoted: tuple[TokenEffect, ...]
    """By its contribution, read by final norm and unembedding, on average; largest change first."""
    suppressed: tuple[TokenEffect, ...]


class ExpertInfluence(Schema):
    influence: Influence | None
    """Null where it has not been measured."""
    command: str
    """What measures it."""
