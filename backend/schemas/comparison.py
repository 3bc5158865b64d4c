"""Comparison of two runs, expert by expert."""

from __future__ import annotations

from typing import Literal

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.experts import AutomaticLabel
from mxd.backend.schemas.runs import Estimate
from mxd.trainer.config import Method

MatchedBy = Literal["gate", "tokens"]


class ComparedExpert(Schema):
    """An expert of a matched pair."""

    expert: int
    label: str | None
    """User label."""
    automatic: AutomaticLabel | None
    density: float
    """Share of indexed tokens on which the expert is active."""
    top_tokens: tuple[str, ...]
    """Tokens on which it is active most often."""


class MatchedPair(Schema):
    """An expert and the most similar expert of the other run."""

    one: ComparedExpert
    other: ComparedExpert
    cosine: float
    """Cosine similarity, -1 to 1."""
    mutual: bool
    """True if each is the other's most similar expert among all active experts."""


class RunComparison(Schema):
    """Experts of one run matched with experts of another."""

    run: str
    other: str
    by: MatchedBy
    """gate: cosine of gate directions (rows of G), if both runs read the same input. tokens: cosine of the
    distributions over each expert's top tokens, if they do not."""
    active: int
    """Number of active experts of ``run``. The densest of them are matched."""
    other_active: int
    """Number of active experts of ``other``. All are candidates."""
    mutual_share: float
    """Share of pairs that are mutual."""
    median_cosine: float
    """Median cosine of the pairs."""
    chance_cosine: float
    """Median cosine after shuffling every dimension of the other run's experts independently."""
    pairs: tuple[MatchedPair, ...]
    """Pairs by density of the first expert, densest first."""


class LossDifference(Schema):
    """Loss increase of a run minus that of another on the same sequences, in nats, with its 95 % bootstrap interval."""

    value: float
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    tokens: int
    """Number of evaluated tokens."""


class LossDifferenceResponse(Schema):
    """Difference of the loss increases of two runs."""

    difference: LossDifference | None
    """Null if the runs have no evaluation on the same sequences."""


class MeanOverExperts(Schema):
    """Mean over experts, with its standard error."""

    value: float
    standard_error: float
    experts: int
    """Number of experts."""


class Interpretability(Schema):
    """Measures of how easily the experts of a run are described. They depend on the indexed text and its length."""

    indexed_tokens: int
    index_text: str
    """Indexed dataset."""
    token_entropy: MeanOverExperts | None
    """Entropy of the tokens on which an expert is active, in bits; null without active experts."""
    label_score: MeanOverExperts | None
    """Balanced accuracy of the heuristic labels on held-out examples, 0.5 to 1; null without labels."""


class InterpretabilityResponse(Schema):
    """Measures of a run's experts."""

    measured: Interpretability | None
    """Null if the run is not indexed."""


class FrontierPoint(Schema):
    """Evaluation at one K, of a run or of several seeds."""

    k: int
    """Number of active experts per token in the evaluation."""
    trained_k: int
    """Number of active experts per token in training."""
    runs: tuple[str, ...]
    """Runs of this point: one, or several that differ only in their seed."""
    parameters: int
    loss_increase: Estimate
    normalized_mse: Estimate
    routing_share: Estimate | None
    strict_routing_share: Estimate | None
    """Null if not measured."""
    difference: Estimate | None
    """Loss increase of the current run's line at the same K minus this one, paired by sequence. Null if that line has
    no such point, or for the line itself."""


class FrontierLine(Schema):
    """Runs of one MLP that differ only in K and seed, or one run evaluated at several K."""

    name: str
    runs: tuple[str, ...]
    method: Method
    own: bool
    """True if it contains the current run."""
    points: tuple[FrontierPoint, ...]
    """By K."""


class Frontier(Schema):
    """Evaluations of the runs of one MLP on the same sequences."""

    text: str
    """Name of the dataset."""
    tokens: int
    sequences: int
    seen_text: bool
    """True if the current run was trained on this dataset."""
    lines: tuple[FrontierLine, ...]
    """The current run's line first."""


class FrontierResponse(Schema):
    """Frontier of a run's MLP."""

    frontier: Frontier | None
    """Null if the run was not evaluated."""
