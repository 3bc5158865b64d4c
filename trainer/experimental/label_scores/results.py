"""Results of ``mxd lab score-labels``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mxd.trainer.analysis.labelling.stored_scores import ScoredText
from mxd.trainer.language_model.sources import display_name
from mxd.trainer.storage.database.label_scores import StoredScore
from mxd.trainer.utils.bootstrap import Interval

ScoreMethod = Literal["detection", "fuzzing", "embedding"]
CHANCE = 0.5
"""AUROC of a score that ignores the label."""


@dataclass(frozen=True)
class LabelScore:
    """AUROC with which a label separates texts of its expert from others."""

    value: float | None
    """0.5 is chance; None if it could not be measured, for ``reason``."""
    low: float | None
    """Lower end of the 95 % Wilson interval with as many trials as texts of the smaller kind, which is conservative."""
    high: float | None
    positive_texts: int
    negative_texts: int
    reason: str | None = None
    """Why there is no score."""


@dataclass(frozen=True)
class ScoredLabel:
    """A label with its scores, and those of the label of another expert on the same texts."""

    expert: int
    label: str
    labeller: str
    """``user``, ``features``, or the name of the language model that wrote the label."""
    other_label: str
    """Label of another scored expert, chosen at random."""
    scores: dict[ScoreMethod, LabelScore]
    other_scores: dict[ScoreMethod, LabelScore]


@dataclass(frozen=True)
class MethodSummary:
    """Scores of one method over all labels that have one."""

    labels: int
    """Number of labels with a score of their own and of the other label."""
    failed: int
    """Number of labels without; they count in no mean."""
    own: Interval | None
    """Mean AUROC of the labels; the interval is over experts."""
    other: Interval | None
    """Mean AUROC of labels of other experts on the texts of these: the control."""
    difference: Interval | None
    own_is_better: Interval | None
    """Share of the experts whose own label scores higher than the other one; equal scores count half."""


@dataclass(frozen=True)
class LabelScores:
    """Result of scoring the labels of a run."""

    run: str
    judge: str
    """Language model that scores."""
    texts: int
    """Maximum number of texts of each kind per label."""
    seed: int
    methods: dict[ScoreMethod, MethodSummary]
    labels: tuple[ScoredLabel, ...]

    def stored(self) -> dict[int, ScoredText]:
        """Return expert -> its label with the scores that the database keeps."""
        judge = display_name(self.judge)
        return {
            each.expert: ScoredText(each.label, [_stored(each, method, judge) for method in each.scores])
            for each in self.labels
        }


def _stored(scored: ScoredLabel, method: ScoreMethod, judge: str) -> StoredScore:
    own, control = scored.scores[method], scored.other_scores[method].value
    return StoredScore(method, judge, own.value, control, own.positive_texts + own.negative_texts, own.reason)
