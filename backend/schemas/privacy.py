"""Protecting passages: what is asked for, how far it is, and what came of it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from backend.schemas.base import Schema
from backend.schemas.steering import ErrorEvent
from trainer.in_place import PLACE
from trainer.protect_config import ProtectionLoss

Names = Annotated[tuple[str, ...], Field(min_length=1, max_length=16)]
PassageText = Annotated[str, Field(min_length=1, max_length=20_000)]


class PassageToProtect(Schema):
    text: PassageText
    paraphrases: Annotated[tuple[PassageText, ...], Field(max_length=8)] = ()
    """The same said otherwise, to measure on."""


class ProtectRequest(Schema):
    """Runs, and passages to be unsure on. The other text is that of the first run's index."""

    runs: Names
    """MxDs of different layers of one language model; moved together."""
    name: Annotated[str, Field(max_length=100)] = f"{PLACE}-private"
    """Of the new runs; {run} is the name of the one that each begins as."""
    passages: Annotated[tuple[PassageToProtect, ...], Field(min_length=1, max_length=64)]
    theta: Annotated[float, Field(gt=0, lt=1)] = 0.75
    """Weight of being unsure on the passages."""
    steps: Annotated[int, Field(ge=1, le=200)] = 60
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 3e-3
    after: Annotated[int, Field(ge=0, le=512)] = 4
    """Tokens of a passage before its first protected prediction."""
    most_added: Annotated[float, Field(ge=0, le=20)] = 0.05
    """Nats a token that the other text may lose."""
    loss: ProtectionLoss = "kl-from-uniform"


class Certainty(Schema):
    """Means over predictions. Uniform predictions have a distance of 0 and an entropy of 1."""

    predictions: int
    confidence_distance: float
    """The largest probability less 1/V, where it is above."""
    entropy: float
    """As a share of ln V."""
    top_five: float
    """Probability of the five most probable tokens together."""
    true_token: float
    """Probability of the token that came next."""
    divergence: float
    """KL(U || p) in nats."""
    missing_entropy: float
    """KL(p || U) in nats."""


class ComparedCertainty(Schema):
    before: Certainty
    after: Certainty


class AddedLoss(Schema):
    """In nats a token, with its 95 % interval."""

    value: float
    low: float | None
    high: float | None


class RetainedText(Schema):
    """Loss in nats a token on other text that was only measured on."""

    tokens: int
    left_out: int
    """Sequences that held a part of a passage."""
    original: float
    """With the MLPs of the language model."""
    before: float
    """With the runs as they were."""
    after: float
    added: AddedLoss
    certainty: ComparedCertainty


class PrivacyBound(Schema):
    """(1 - theta)/theta (L_A(uniform) - L_A), which a minimum keeps to where the weights can predict uniformly."""

    theta: float
    uniform: float
    bound: float
    measured: float


class RelearningAttack(Schema):
    """Fine-tuning on half of the passages, and how sure the other half is."""

    steps: int
    passages: int
    original: Certainty
    protected: Certainty
    attacked: Certainty
    original_attacked: Certainty


class PrivacyCertificate(Schema):
    """Of a Newton step: what was used, and what follows from it."""

    status: Literal["holds", "refused", "estimated"]
    reason: str
    epsilon: float
    delta: float
    damping: float
    radius: float
    hessian_lipschitz: float
    is_lipschitz_given: bool
    smallest_eigenvalue: float
    step_length: float
    sensitivity: float | None
    calibrated_sigma: float | None
    sigma: float


class CheckedStep(Schema):
    """One of the steps among which the best is chosen."""

    step: int
    protected: Certainty
    added: float
    """Loss in nats a token that the text to choose by has gained."""


class PrivacyResult(Schema):
    """What came of protecting passages; no part of a passage is in it."""

    runs: tuple[str, ...]
    """The new ones."""
    began_as: tuple[str, ...]
    theta: float
    loss: ProtectionLoss
    learning_rate: float
    vocabulary: int
    passages: int
    steps: int
    kept_step: int
    path: tuple[CheckedStep, ...]
    protected: ComparedCertainty
    otherwise: dict[str, ComparedCertainty]
    """The passages in other words: given, later beginning, swapped case."""
    retained: RetainedText
    bound: PrivacyBound
    relearning: RelearningAttack | None
    certificate: PrivacyCertificate | None


class ProtectedRuns(Schema):
    """A result as the store has it."""

    created_at: datetime
    text: str
    """What the other text is called."""
    most_added: float
    result: PrivacyResult


class PrivacyList(Schema):
    """The newest first."""

    protected: tuple[ProtectedRuns, ...]


class ProtectProgressEvent(Schema):
    event: Literal["progress"] = "progress"
    step: int
    of: int
    confidence_distance: float
    """At the last step that was looked at."""
    added: float


class ProtectDoneEvent(Schema):
    event: Literal["done"] = "done"
    protected: ProtectedRuns


ProtectEvent = Annotated[ProtectProgressEvent | ProtectDoneEvent | ErrorEvent, Field(discriminator="event")]


class SureTokensRequest(Schema):
    """A text, and two sets of runs to read it with."""

    before: Names
    after: Names
    text: Annotated[str, Field(min_length=1, max_length=200_000)]


class ExpectedToken(Schema):
    probability: float
    """Of the token that came."""
    entropy: float
    """As a share of ln V."""
    likely: str
    """The most probable token."""
    likely_probability: float


class SureToken(Schema):
    text: str
    before: ExpectedToken
    after: ExpectedToken


class SureTokensResponse(Schema):
    tokens: tuple[SureToken, ...]
    """Behind the start token."""
    took_ms: float
