"""Data classes of an explained edge: its heads, and the sources of their attention scores. They need no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from mxd.trainer.analysis.circuits.graph import Source
from mxd.trainer.utils.schema import documented


@documented
@dataclass(frozen=True)
class ScoreSource:
    """A source that raises or lowers an attention score."""

    kind: Source
    position: int | None
    """Index of its token; null for biases, which include the norms' and projections'."""
    layer: int | None
    run: str | None
    """Run of an expert or error."""
    expert: int | None
    score: float
    """Contribution to the score above the mean of the visible keys."""


@documented
@dataclass(frozen=True)
class AttentionScore:
    """Why a head looked from one token to another."""

    value: float
    """Scaled product of query and key, without masks and position biases."""
    above_mean: float
    """The same minus its mean over the visible keys: the part that changes the pattern."""
    query_sources: tuple[ScoreSource, ...]
    """Largest contributions through the query, with the keys fixed."""
    query_rest: float
    """Sum of all other contributions through the query."""
    key_sources: tuple[ScoreSource, ...]
    """Largest contributions through the keys, with the query fixed."""
    key_rest: float
    """Sum of all other contributions through the keys."""


@documented
@dataclass(frozen=True)
class HeadPart:
    """Part of an edge that passes a head."""

    layer: int
    head: int
    weight: float
    """Part of the edge's weight on paths through the head."""
    query: int
    """Position from which the head looked, of the pair of positions that carried most."""
    key: int
    """Position at which it looked."""
    pair_weight: float
    """Part of the edge's weight that passes from ``key`` to ``query`` in this head."""
    pattern: float
    """Attention weight of ``key``."""
    score: AttentionScore | None
    """Explanation of the pair; null for all but the strongest heads."""


@documented
@dataclass(frozen=True)
class LayerPart:
    """Parts of an edge at one attention layer. They sum to the edge's weight."""

    layer: int
    heads: float
    """Part that passes the heads of the layer."""
    residual: float
    """Part that passes the layer in the residual stream."""


@documented
@dataclass(frozen=True)
class EdgeAttention:
    """Heads that carried an edge. A path through heads of several layers counts for each of them."""

    weight: float
    """Weight of the edge."""
    without_attention: float
    """Part of the weight on the path that passes no head at all."""
    layers: tuple[LayerPart, ...]
    """Attention layers between the nodes."""
    heads: tuple[HeadPart, ...]
    """Heads with the largest parts, largest first."""
