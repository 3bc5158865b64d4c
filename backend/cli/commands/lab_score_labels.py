"""``mxd lab score-labels``: scores of expert labels by a local language model, without a key."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.backend.cli.console import columns, task
from mxd.trainer.errors import UserError
from mxd.trainer.experimental.label_scores.results import ScoreMethod

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.trainer.experimental.label_scores.results import LabelScores
    from mxd.trainer.experimental.label_scores.scoring import NamedLabel
    from mxd.trainer.utils.bootstrap import Interval

METHODS: tuple[ScoreMethod, ...] = ("detection", "fuzzing", "embedding")
HEADER = ("score", "labels", "failed", "own label", "95 %", "another label", "95 %", "own is better", "95 %")


class ScoreLabelsCommand(ModelCommand):
    """Score expert labels with a local language model: detection, fuzzing and embedding similarity.

    Each score is an AUROC on held-out texts of the expert; 0.5 is chance. Labels of other experts are the control: if
    they score as high, the language model is too weak for its scores to mean anything. Scores are stored with their
    label and shown on the page of its expert, until the label changes.
    """

    examples: ClassVar = (
        "mxd lab score-labels gpt2-l8-k32 --limit 50",
        "mxd lab score-labels gpt2-l8-k32 --language-model Qwen/Qwen3-4B --score detection --score fuzzing",
        "mxd lab score-labels gpt2-l8-k32 --expert 12 --expert 40 --json",
    )

    name: Positional[str]
    """Name or folder of the run."""
    language_model: str | None = None
    """Hub name, folder or GGUF file of the language model that scores. Default: the one that the run belongs to."""
    score: list[ScoreMethod] | None = None
    """Score to compute: detection, fuzzing or embedding. Repeat the flag for several. Default: all three."""
    limit: Annotated[int, Field(ge=2, le=100_000)] = 50
    """Maximum number of labels, sampled at random. Default: 50."""
    expert: list[Annotated[int, Field(ge=0)]] | None = None
    """Score only the label of this expert. Repeat the flag for several."""
    texts: Annotated[int, Field(ge=3, le=50)] = 8
    """Maximum number of held-out texts of each kind per label. Default: 8."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the sample, of the control and of the bootstrap. Default: 0."""

    def run(self) -> int:
        """Score, and print one row per score."""
        from mxd.backend.database.engine import opened
        from mxd.trainer.analysis.labelling.stored_scores import save_label_scores
        from mxd.trainer.experimental.label_scores.judge import LocalJudge
        from mxd.trainer.experimental.label_scores.scoring import score_labels
        from mxd.trainer.language_model.model import LanguageModel
        from mxd.trainer.storage.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        with opened(settings.database_url) as database:
            labels = self._labels(run.name, database)
            judge = LocalJudge(LanguageModel.load(self.language_model or run.language_model_source, self.device))
            methods = tuple(self.score or METHODS)
            with task(f"Scoring labels of {run.name}", "labels") as callbacks:
                result = score_labels(run, database, labels, judge, methods, self.texts, self.seed, callbacks)
            self.report(asdict(result), _table(result))
            save_label_scores(database, run.name, result.stored())
        return 0

    def _labels(self, name: str, database: Engine) -> dict[int, NamedLabel]:
        """Labels as displayed: the user's, else the automatic one.

        Raises:
            UserError: there are fewer than two, or an expert has none.
        """
        import random

        from sqlalchemy.orm import Session

        from mxd.backend.database.annotations import labels_of
        from mxd.backend.queries.automatic_labels import shown_labels
        from mxd.trainer.experimental.label_scores.scoring import NamedLabel
        from mxd.trainer.storage.run_records import find_record

        with Session(database) as session:
            record = find_record(session, name)
            experts = range(record.num_experts) if self.expert is None else self.expert
            labels = {
                expert: NamedLabel(label.label, label.labeller)
                for expert, label in shown_labels(session, record, experts).items()
            }
            labels |= {expert: NamedLabel(text, "user") for expert, text in labels_of(session, name, experts).items()}
        missing = sorted(set(self.expert or ()) - set(labels))
        if missing:
            raise UserError(f"Expert {missing[0]} of {name} has no label. Run: mxd label {name}")
        if len(labels) < 2:
            raise UserError(
                f"{name} has fewer than two labels, and the control needs another one. Run: mxd label {name}"
            )
        chosen = random.Random(self.seed).sample(sorted(labels), min(self.limit, len(labels)))
        return {expert: labels[expert] for expert in sorted(chosen)}


def _table(result: LabelScores) -> str:
    rows = [
        (
            method,
            f"{summary.labels:,}",
            f"{summary.failed:,}",
            *_interval(summary.own),
            *_interval(summary.other),
            *_interval(summary.own_is_better),
        )
        for method, summary in result.methods.items()
    ]
    head = f"{result.run}: {len(result.labels):,} labels scored by {result.judge}; mean AUROC over labels, chance 0.5"
    return "\n".join([head, *columns(HEADER, rows)])


def _interval(interval: Interval | None) -> tuple[str, str]:
    return ("", "") if interval is None else (f"{interval.value:.3f}", f"{interval.low:.3f} to {interval.high:.3f}")
