"""Results of steering towards concepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mxd.trainer.utils.bootstrap import Interval

Method = Literal["expert", "random_expert", "transcoder", "difference_of_means", "random_direction"]
"""expert: the chosen expert is amplified. random_expert: another of equal density, in its own unit. The others add a
fixed direction with the norm of the expert's contribution: transcoder, the chosen feature; difference_of_means, of the
residual stream of texts with and without the concept."""


@dataclass(frozen=True)
class ConceptDetection:
    """Detection of a concept on texts that had no part in any choice."""

    concept: str
    texts: int
    """Number of texts with the concept."""
    expert: int
    """Expert with the largest AUROC on the first half of the texts."""
    random_expert: int
    feature: int | None
    """Chosen feature of the transcoder; None without one."""
    classifier_auroc: Interval
    """AUROC of the classifier of words that scores the steered texts."""
    auroc: dict[str, Interval]
    """AUROC of each method on the second half of the texts."""


@dataclass(frozen=True)
class Dose:
    """Texts of one concept, method and strength."""

    concept: str
    method: Method
    strength: float
    gain: tuple[float, ...]
    """Score of the classifier minus that of the text without steering, for each prompt."""
    loss_increase: tuple[float, ...]
    """Loss of the text under the unedited model minus that of the text without steering, in nats per token."""


@dataclass(frozen=True)
class DoseSummary:
    """Means over concepts of one method and strength; intervals are over concepts."""

    method: Method
    strength: float
    gain: Interval
    loss_increase: Interval


@dataclass(frozen=True)
class MethodSummary:
    """A method at the strength that was best for each concept on one half of the prompts, on the other half.

    Intervals are over concepts.
    """

    method: Method
    gain: Interval
    loss_increase: Interval
    over_random_expert: Interval
    """Gain minus that of the random expert, paired by concept."""


@dataclass(frozen=True)
class ConceptSteering:
    """Result of the benchmark."""

    run: str
    layer: int
    transcoder: str | None
    score_without_steering: float
    """Mean score of the classifiers on the texts without steering."""
    detection: tuple[ConceptDetection, ...]
    mean_auroc: dict[str, Interval]
    """Mean AUROC over concepts of each method, and of the classifier; intervals are over concepts."""
    curves: tuple[DoseSummary, ...]
    methods: tuple[MethodSummary, ...]
    doses: tuple[Dose, ...]
