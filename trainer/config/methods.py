"""Training methods, and facts about them that are needed where no layer is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, get_args

TrainableMethod = Literal[
    "mxd",
    "transcoder",
    "skip-transcoder",
    "autoencoder",
    "relu-mxd",
    "batch-topk-mxd",
    "jumprelu-mxd",
    "molt",
]
ExperimentalMethod = Literal["low-rank-mxd", "tensor-ring-mxd", "hidden-mxd"]
ImportedMethod = Literal["jumprelu-transcoder", "jumprelu-skip-transcoder"]
Method = Literal[TrainableMethod, ExperimentalMethod, ImportedMethod]
Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "sigmoid"]
Encoder = Literal["mlp", "glu"]
Mixing = Literal["paper", "centred"]

MOLT_LEVELS = tuple(level for level in range(5) for _ in range(2**level))
"""How often the largest rank is halved, for each transform in a cycle of 31."""
MAX_K_FACTOR = 4
"""Largest number of experts per token of a batch-topk-mxd, as a multiple of K."""


@dataclass(frozen=True)
class RankTraits:
    """How the rank of a low-rank method determines its sizes."""

    default: Callable[[int], int]
    """Default rank for an output width."""
    bottleneck: Callable[[int, int], int]
    """Width of the bottleneck for a number of experts and a rank."""


@dataclass(frozen=True)
class MethodTraits:
    """Facts about a method."""

    summary: str
    """Noun phrase for model cards."""
    has_top_k: bool = True
    """True if the gate keeps the K largest scores of each token, so that a smaller K can be requested."""
    routes_all_experts: bool = False
    """True if a routing has one column per expert."""
    initializes_from_examples: bool = False
    """True if experts are initialised from example tokens by default."""
    mixing: Mixing = "paper"
    """Default mixing. Centred: the median of a C is subtracted, so that no constant mixing can replace the MLP."""
    trains_on_whole_steps: bool = False
    """True if the loss or the gate is not a mean over tokens, so that several processes would train another layer."""
    rank: RankTraits | None = None
    """Rank of the experts; None if the method has no rank setting."""
    module: str = ""
    """Module that registers the layer classes; empty if the layer registry already has them."""


def transform_ranks(count: int, largest: int) -> tuple[int, ...]:
    """Ranks of ``count`` MOLT transforms: one of rank R, two of R/2, four of R/4 … sixteen of R/16, then R again."""
    return tuple(max(1, largest >> MOLT_LEVELS[number % len(MOLT_LEVELS)]) for number in range(count))


_TRAITS: dict[str, MethodTraits] = {
    "mxd": MethodTraits(
        "a mixture of linear decoders (MxD, arXiv 2505.21364)", initializes_from_examples=True, mixing="centred"
    ),
    "transcoder": MethodTraits("a TopK transcoder", initializes_from_examples=True),
    "skip-transcoder": MethodTraits("a TopK skip transcoder", initializes_from_examples=True),
    "autoencoder": MethodTraits("a TopK autoencoder of the MLP's output", initializes_from_examples=True),
    "relu-mxd": MethodTraits("an MxD without a top-k", has_top_k=False, routes_all_experts=True),
    "batch-topk-mxd": MethodTraits(
        "an MxD with K active experts on average (BatchTopK, arXiv 2412.06410)",
        has_top_k=False,
        initializes_from_examples=True,
        mixing="centred",
        trains_on_whole_steps=True,
    ),
    "jumprelu-mxd": MethodTraits(
        "an MxD with a learned threshold per expert (JumpReLU, arXiv 2407.14435)",
        has_top_k=False,
        routes_all_experts=True,
        initializes_from_examples=True,
        trains_on_whole_steps=True,
    ),
    "molt": MethodTraits(
        "a mixture of low-rank transforms (MOLT)",
        rank=RankTraits(lambda width: max(1, width // 2), lambda count, rank: sum(transform_ranks(count, rank))),
    ),
    "jumprelu-transcoder": MethodTraits("a transcoder with a threshold per feature (JumpReLU)", has_top_k=False),
    "jumprelu-skip-transcoder": MethodTraits(
        "a skip transcoder with a threshold per feature (JumpReLU)", has_top_k=False
    ),
}


def register_method(method: ExperimentalMethod, traits: MethodTraits) -> None:
    """Make a method available that is defined outside the core."""
    _TRAITS[method] = traits


def method_traits(method: str) -> MethodTraits:
    """Facts about a method; loads the experimental methods if the method is one of them.

    Raises:
        KeyError: there is no such method.
    """
    if method not in _TRAITS and method in get_args(ExperimentalMethod):
        import_module("mxd.trainer.experimental")
    return _TRAITS[method]


def max_active(method: Method, k: int) -> int:
    """Number of columns of a routing: the most experts that one token can have."""
    return MAX_K_FACTOR * k if method == "batch-topk-mxd" else k
