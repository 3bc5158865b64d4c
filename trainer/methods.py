"""Which methods there are, and what distinguishes them where no layer is at hand."""

from __future__ import annotations

from typing import Literal

FittedMethod = Literal[
    "mxd",
    "transcoder",
    "skip-transcoder",
    "autoencoder",
    "relu-mxd",
    "batch-topk-mxd",
    "jumprelu-mxd",
    "low-rank-mxd",
    "tensor-ring-mxd",
    "molt",
    "cross-layer-mxd",
    "peer",
]
ImportedMethod = Literal["jumprelu-transcoder", "jumprelu-skip-transcoder"]
Method = Literal[FittedMethod, ImportedMethod]
Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "sigmoid"]
Encoder = Literal["mlp", "glu"]
NO_TOP_K: frozenset[Method] = frozenset(
    {"relu-mxd", "batch-topk-mxd", "jumprelu-mxd", "peer", "jumprelu-transcoder", "jumprelu-skip-transcoder"}
)
"""Methods whose gate does not keep the K largest scores of a token, so that no other K can be asked of it."""
EVERY_EXPERT: frozenset[Method] = frozenset({"relu-mxd", "jumprelu-mxd"})
"""Fitted methods whose routing has a column for every expert."""
WITH_RANK: frozenset[Method] = frozenset({"low-rank-mxd", "tensor-ring-mxd", "molt"})
"""Methods whose experts have a rank that is chosen."""
MOST_OF_ONE_TOKEN = 4
"""Experts of one token of a batch-topk-mxd at most, in units of K."""
HEADS = 4
"""Of a peer, each of which chooses its share of a token's experts."""
LEVELS = tuple(level for level in range(5) for _ in range(2**level))
"""How often the largest rank of a MOLT is halved, for each of 31 transforms."""


def routed_columns(method: Method, k: int) -> int:
    """Columns of a routing: experts that one token can have."""
    return MOST_OF_ONE_TOKEN * k if method == "batch-topk-mxd" else k


def transform_ranks(count: int, largest: int) -> tuple[int, ...]:
    """Ranks of the transforms of a MOLT: R, twice R/2, four times R/4 … sixteen times R/16, and again from R."""
    return tuple(max(1, largest >> LEVELS[place % len(LEVELS)]) for place in range(count))


def inner_width(method: Method, num_experts: int, rank: int) -> int:
    """Numbers that the answer of an expert passes through; of a MOLT those of all transforms together."""
    if method == "molt":
        return sum(transform_ranks(num_experts, rank))
    return rank**2 if method == "tensor-ring-mxd" else rank
