"""Measurements of privacy fine-tuning: the same in Python, ``--json``, the database and over HTTP, without PyTorch.

They contain no part of a passage, unless ``--store-passages`` asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mxd.trainer.config.privacy import ProtectionLoss
from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.schema import documented


@documented
@dataclass(frozen=True)
class Confidence:
    """Mean confidence over predictions. Uniform predictions have distance 0 and entropy 1."""

    predictions: int
    """Number of predictions."""
    confidence_distance: float
    """Largest probability minus 1/V, at least 0."""
    entropy: float
    """Entropy divided by ln V."""
    top_five: float
    """Summed probability of the five most probable tokens."""
    true_token: float
    """Probability of the actual next token."""
    divergence: float
    """KL(U || p) in nats."""
    missing_entropy: float
    """KL(p || U) in nats: ln V minus the entropy."""


@documented
@dataclass(frozen=True)
class ConfidenceComparison:
    """Confidence on the same texts with the original runs and with the new runs."""

    before: Confidence
    after: Confidence


@documented
@dataclass(frozen=True)
class TokenPrediction:
    """Prediction at a token."""

    probability: float
    """Probability of the actual token."""
    entropy: float
    """Entropy divided by ln V; 1 for a uniform prediction."""
    likely: str
    """Most probable token."""
    likely_probability: float


@documented
@dataclass(frozen=True)
class TokenConfidence:
    """Predictions at one token with two sets of runs."""

    text: str
    before: TokenPrediction
    after: TokenPrediction


@documented
@dataclass(frozen=True)
class EvalPoint:
    """Measurements at a step, by which the best step is selected."""

    step: int
    protected: Confidence
    loss_increase: float
    """Loss increase on the validation part over the original runs, in nats per token."""


@documented
@dataclass(frozen=True)
class Relearning:
    """Confidence on the passages that the attacker does not have."""

    steps: int
    passages: int
    """Number of measured passages. The attacker fine-tunes on the others."""
    original: Confidence
    """Original runs, no attack."""
    protected: Confidence
    """Protected runs, no attack."""
    attacked: Confidence
    """Protected runs after the attack."""
    original_attacked: Confidence
    """Original runs after the same attack: the baseline for what the attacker's half reveals."""


@documented
@dataclass(frozen=True)
class RetainLoss:
    """Loss on the test part of the retain set, in nats per token."""

    tokens: int
    left_out: int
    """Number of dropped sequences, which overlap with a passage."""
    original: float
    """Loss of the original model."""
    before: float
    """Loss with the original runs."""
    after: float
    """Loss with the new runs."""
    loss_increase: Interval
    """Paired difference of after and before."""
    confidence: ConfidenceComparison


@documented
@dataclass(frozen=True)
class PrivacyBound:
    """Bound on the passage loss at a minimum of the objective, beside the measured loss.

    A minimum has L_K ≤ (1 - θ)/θ (L_A(uniform) - L_A), if the trained weights can express uniform predictions. C and
    the gates of single layers generally cannot, so this is a reference value, not a guarantee.
    """

    theta: float
    uniform: float
    """Retain loss L_A of uniform predictions: ln V nats."""
    bound: float
    """Bound on the passage loss L_K in nats, for the measured retain loss."""
    measured: float
    """Measured passage loss L_K in nats."""


@documented
@dataclass(frozen=True)
class PrivacyResult:
    """Measurements of runs that were fine-tuned jointly for privacy."""

    runs: tuple[str, ...]
    """Names of the new runs."""
    parents: tuple[str, ...]
    theta: float
    loss: ProtectionLoss
    learning_rate: float
    vocabulary: int
    passages: int
    steps: int
    """Number of steps taken."""
    best_step: int
    """Step whose weights are saved."""
    eval_points: tuple[EvalPoint, ...]
    protected: ConfidenceComparison
    variations: dict[str, ConfidenceComparison]
    """Confidence on variations of the passages, by kind; see ``passages.variations_of``."""
    retained: RetainLoss
    bound: PrivacyBound
    relearning: Relearning | None
    passage_tokens: tuple[tuple[TokenConfidence, ...], ...] = ()
    """Tokens of each passage with the predictions before and after; empty unless ``store_passages`` is set."""
