"""Privacy fine-tuning: requests, progress and measured results."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.steering import ErrorEvent
from mxd.trainer.config.privacy import ProtectionLoss
from mxd.trainer.config.training import PLACE

Names = Annotated[tuple[str, ...], Field(min_length=1, max_length=16)]
PassageText = Annotated[str, Field(min_length=1, max_length=20_000)]


class PassageToProtect(Schema):
    """A passage on which predictions should become uncertain."""

    text: PassageText
    paraphrases: Annotated[tuple[PassageText, ...], Field(max_length=8)] = ()
    """Paraphrases for measurement only."""


class ProtectRequest(Schema):
    """Runs and passages. The retain text is the indexed text of the first run."""

    runs: Names
    """MxDs for different layers of one language model, fine-tuned jointly."""
    name: Annotated[str, Field(max_length=100)] = f"{PLACE}-private"
    """Name pattern of the new runs; {run} stands for the parent's name."""
    passages: Annotated[tuple[PassageToProtect, ...], Field(min_length=1, max_length=64)]
    theta: Annotated[float, Field(gt=0, lt=1)] = 0.75
    """Weight of the loss on the passages; the retain loss has weight 1 - theta."""
    steps: Annotated[int, Field(ge=1, le=200)] = 60
    """Maximum number of optimisation steps."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 3e-3
    """Learning rate of Adam."""
    skip_tokens: Annotated[int, Field(ge=0, le=512)] = 4
    """Number of initial predictions of each passage that are not protected."""
    max_added_loss: Annotated[float, Field(ge=0, le=20)] = 0.05
    """Largest allowed loss increase on the retain text, in nats per token."""
    loss: ProtectionLoss = "kl-from-uniform"
    """Loss on the passages."""


class Confidence(Schema):
    """Mean confidence of next-token predictions. Uniform predictions have distance 0 and entropy 1."""

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
    """KL(U || p) in nats, with U uniform."""
    missing_entropy: float
    """KL(p || U) in nats."""


class ConfidenceComparison(Schema):
    """Confidence before and after fine-tuning."""

    before: Confidence
    after: Confidence


class LossIncrease(Schema):
    """Loss increase in nats per token, with its 95 % confidence interval."""

    value: float
    low: float | None
    """Lower end of the interval."""
    high: float | None
    """Upper end of the interval."""


class RetainedText(Schema):
    """Losses on held-out retain text, in nats per token."""

    tokens: int
    """Number of tokens measured."""
    left_out: int
    """Number of sequences left out because they overlap a passage."""
    original: float
    """Loss of the original model."""
    before: float
    """Loss with the parents."""
    after: float
    """Loss with the new runs."""
    loss_increase: LossIncrease
    """``after`` minus ``before``."""
    confidence: ConfidenceComparison


class PrivacyBound(Schema):
    """Bound (1 - theta)/theta (L_A(uniform) - L_A), which a minimum satisfies if uniform predictions are reachable."""

    theta: float
    uniform: float
    """Retain loss of uniform predictions, in nats per token."""
    bound: float
    """Bound on the passages' KL(U || p), in nats."""
    measured: float
    """Measured KL(U || p) of the passages, in nats."""


class RelearningAttack(Schema):
    """Fine-tuning on half of the passages, measured on the other half."""

    steps: int
    """Number of fine-tuning steps."""
    passages: int
    """Number of passages fine-tuned on."""
    original: Confidence
    """Original model."""
    protected: Confidence
    """New runs."""
    attacked: Confidence
    """New runs after fine-tuning."""
    original_attacked: Confidence
    """Original model after fine-tuning."""


class EvalPoint(Schema):
    """Evaluation at one step."""

    step: int
    protected: Confidence
    """Confidence on the passages."""
    loss_increase: float
    """Loss increase on the validation part of the retain text, in nats per token."""


class PrivacyResult(Schema):
    """Results of privacy fine-tuning. Contains no part of a passage."""

    runs: tuple[str, ...]
    """Names of the new runs."""
    parents: tuple[str, ...]
    """Names of the runs that were fine-tuned."""
    theta: float
    loss: ProtectionLoss
    learning_rate: float
    vocabulary: int
    """Vocabulary size V."""
    passages: int
    """Number of passages."""
    steps: int
    """Number of steps taken."""
    best_step: int
    """Step whose weights were saved."""
    eval_points: tuple[EvalPoint, ...]
    """Evaluations that the best step was selected from."""
    protected: ConfidenceComparison
    """Confidence on the passages."""
    variations: dict[str, ConfidenceComparison]
    """Confidence on variations of the passages: paraphrases, later beginnings, swapped case."""
    retained: RetainedText
    bound: PrivacyBound
    relearning: RelearningAttack | None
    """Null if not measured."""


class ProtectedRuns(Schema):
    """A stored result."""

    created_at: datetime
    text: str
    """Name of the retain dataset."""
    max_added_loss: float
    """Allowed loss increase on the retain text, in nats per token."""
    result: PrivacyResult


class PrivacyList(Schema):
    """Results that involve a run."""

    protected: tuple[ProtectedRuns, ...]
    """Newest first."""


class ProtectProgressEvent(Schema):
    """Progress of privacy fine-tuning."""

    event: Literal["progress"] = "progress"
    step: int
    total: int
    """Maximum number of steps."""
    confidence_distance: float
    """Confidence distance on the passages at the last evaluated step."""
    loss_increase: float
    """Loss increase on the retain text at the last evaluated step, in nats per token."""


class ProtectDoneEvent(Schema):
    """Result of privacy fine-tuning."""

    event: Literal["done"] = "done"
    protected: ProtectedRuns


ProtectEvent = Annotated[ProtectProgressEvent | ProtectDoneEvent | ErrorEvent, Field(discriminator="event")]


class ConfidenceRequest(Schema):
    """A text, and two sets of runs to compare on it."""

    before: Names
    after: Names
    text: Annotated[str, Field(min_length=1, max_length=200_000)]


class NextTokenConfidence(Schema):
    """Confidence of one prediction."""

    probability: float
    """Probability of the actual token."""
    entropy: float
    """Entropy divided by ln V."""
    likely: str
    """Most probable token."""
    likely_probability: float
    """Probability of the most probable token."""


class TokenConfidence(Schema):
    """Confidence of both sets of runs before one token."""

    text: str
    before: NextTokenConfidence
    after: NextTokenConfidence


class ConfidenceResponse(Schema):
    """Confidence on each token of a text."""

    tokens: tuple[TokenConfidence, ...]
    """Tokens after the start token."""
    took_ms: float
    """Computation time in milliseconds."""
