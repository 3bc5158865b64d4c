"""What came of protecting passages; ``asdict`` of it is what the store, ``--json`` and the dashboard carry.

No part of a passage is in it: what is exported with a run shall not give away what the run was to keep.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainer.evaluation.intervals import Interval
from trainer.privacy.certificate import Certificate
from trainer.privacy.descent import Checked
from trainer.privacy.measures import Compared
from trainer.privacy.relearning import Relearning
from trainer.protect_config import ProtectionLoss


@dataclass(frozen=True)
class Retained:
    """Loss in nats a token on other text that was only measured on."""

    tokens: int
    left_out: int
    """Sequences that held a part of a passage."""
    original: float
    """With the MLPs of the language model."""
    before: float
    """With the runs as they were."""
    after: float
    added: Interval
    """After less before, paired."""
    certainty: Compared


@dataclass(frozen=True)
class Bound:
    """What a minimum of the objective promises of the passages, beside what was measured.

    Compared with predictions that are uniform everywhere, a minimum has L_K ≤ (1 - θ)/θ (L_A(uniform) - L_A). It
    presumes that the weights that move can reach these; C and the gate of single layers cannot in general, so this is
    what to compare with, not a promise.
    """

    theta: float
    uniform: float
    """L_A of uniform predictions, ln V, in nats."""
    bound: float
    """Of L_K, in nats, with the loss that was measured after."""
    measured: float
    """L_K on the passages after, in nats."""


@dataclass(frozen=True)
class Protected:
    """Runs that were changed together so that the language model is unsure on some passages."""

    runs: tuple[str, ...]
    """The new ones."""
    began_as: tuple[str, ...]
    theta: float
    loss: ProtectionLoss
    learning_rate: float
    vocabulary: int
    passages: int
    steps: int
    """That were taken."""
    kept_step: int
    """The one whose weights were kept; 1 of a Newton step."""
    path: tuple[Checked, ...]
    protected: Compared
    otherwise: dict[str, Compared]
    """The passages in other words, by kind; see ``passages.said_otherwise``."""
    retained: Retained
    bound: Bound
    relearning: Relearning | None
    certificate: Certificate | None
    """Of a Newton step."""


def bound_of(theta: float, vocabulary: int, retained: float, measured: float) -> Bound:
    """The bound for losses in nats."""
    uniform = math.log(vocabulary)
    return Bound(theta, uniform, (1 - theta) / theta * (uniform - retained), measured)
