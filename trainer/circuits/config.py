"""What is asked of a circuit."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainer.config import Config

Errors = Literal["kept", "dropped"]

MOST_TOKENS = 128
"""Up to the traced position. Every token multiplies the nodes of every layer."""


class TargetConfig(Config):
    """The logit that is explained, and on which activations."""

    prompt: Annotated[str, Field(max_length=200_000)]
    target: Annotated[int, Field(ge=0)] | None = None
    """Id of the next token that is explained; by default the most probable one."""
    position: Annotated[int, Field(ge=0)] | None = None
    """The token behind which it is expected, 0 being the start token; by default the last one."""
    errors: Errors = "kept"
    """kept: what each layer misses of its MLP is added, so all activations are those of the language model. dropped:
    the layers answer alone."""


class CircuitConfig(TargetConfig):
    """A circuit, and what of it is drawn."""

    nodes: Annotated[int, Field(ge=2, le=300)] = 40
    """Nodes that are kept at most, the target not counted."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Of all influence, the share that the kept nodes hold, where as many are allowed."""
    edge_share: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Of the influence between kept nodes, the share that the drawn edges hold."""
    followed: Annotated[int, Field(ge=1, le=2048)] = 128
    """Experts whose own causes are looked for, the most influential first; the others are where a path begins."""
