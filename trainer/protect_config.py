"""How passages are protected; see ``trainer.privacy``. A run that was changed so keeps this in its settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainer.counts import Count

ProtectionLoss = Literal["kl-from-uniform", "missing-entropy"]
SUBJECT = "privacy: "
"""What the subjects of what was measured begin with in the store; the names of the new runs follow."""


class NewtonConfig(BaseModel):
    """One damped Newton step on the scales of a few experts, in place of descent on all of C and the gate."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    experts: Annotated[int, Field(ge=1, le=256)]
    """How many are scaled: those that write most on the passages."""
    damping: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    """λ of the penalty λ/2 times the squared length of the change, which is added to the Hessian as well."""
    radius: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """C, the longest change that is reckoned with; by default the least that is proved to hold the minimum."""
    hessian_lipschitz: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """M, a Lipschitz constant of the Hessian within the radius that you have proved; without it one is estimated, and
    nothing is certified."""
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.9
    """Of the certificate; it is proved below 1."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """Of the certificate."""
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Standard deviation of the noise; by default the calibrated one where the certificate holds, and none where it
    does not."""


class ProtectConfig(BaseModel):
    """What moves a run away from being sure on passages, and what keeps it where it is elsewhere."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    theta: Annotated[float, Field(gt=0, lt=1)] = 0.75
    """Weight of being unsure on the passages; 1 less it is that of the loss on the other text."""
    loss: ProtectionLoss = "kl-from-uniform"
    """kl-from-uniform: KL(U || p), convex in the logits. missing-entropy: ln V less the entropy, KL(p || U)."""
    steps: Annotated[int, Field(ge=1, le=10_000)] = 60
    """Of descent at most; the best one is kept."""
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3e-3
    """Of Adam."""
    distance_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """λ: half of it times the squared distance from the run that it began as is added to the loss."""
    after: Annotated[int, Field(ge=0, le=65_536)] = 4
    """Tokens of a passage before its first protected prediction: what follows fewer is much the same in all text."""
    batch: Count = 2048
    """Tokens of the other text that are read at each step."""
    tokens: Count = 65_536
    """Tokens of the other text: half to fit on, an eighth to choose the step by, the rest to measure on."""
    check_every: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Steps between those among which the best one is chosen."""
    most_added: Annotated[float, Field(ge=0)] = 0.05
    """Nats a token that the other text may lose: of the steps that stay below it the one that is least sure on the
    passages is kept."""
    attack_steps: Annotated[int, Field(ge=0, le=1000)] = 20
    """Of fine-tuning on half of the passages, after which the other half is looked at again."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the order of the other text, and of the bootstrap."""
    newton: NewtonConfig | None = None
    """Where given, one Newton step takes the place of descent."""
