"""Privacy fine-tuning: requests, progress and measured results."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.steering import ErrorEvent
from mxd.trainer.config.privacy import ProtectionLoss
from mxd.trainer.config.training import PLACE
from mxd.trainer.training.privacy.results import PrivacyResult, TokenConfidence

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
    theta: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Weight of the loss on the passages; the retain loss has weight 1 - theta."""
    steps: Annotated[int, Field(ge=1, le=200)] = 10
    """Maximum number of optimisation steps."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 3e-3
    """Learning rate of Adam."""
    skip_tokens: Annotated[int, Field(ge=0, le=512)] = 4
    """Number of initial predictions of each passage that are not protected."""
    max_added_loss: Annotated[float, Field(ge=0, le=20)] = 0.05
    """Largest allowed loss increase on the retain text, in nats per token."""
    loss: ProtectionLoss = "kl-from-uniform"
    """Loss on the passages."""
    store_passages: bool = False
    """Choice to store the passages with the result, and the predictions at each token."""


class ProtectedRuns(Schema):
    """A stored result."""

    created_at: datetime
    text: str
    """Name of the retain dataset."""
    max_added_loss: float
    """Allowed loss increase on the retain text, in nats per token."""
    skip_tokens: int
    """Number of initial predictions of each passage that are not protected."""
    has_runs: bool
    """False if a run of the result is missing here; its weights cannot be evaluated on other text then."""
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


class ConfidenceResponse(Schema):
    """Confidence on each token of a text."""

    tokens: tuple[TokenConfidence, ...]
    """Tokens after the start token."""
    took_ms: float
    """Computation time in milliseconds."""
