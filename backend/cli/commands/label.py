"""``mxd label``: label every expert with the built-in heuristic."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar

from mxd.backend.cli.base import Command, Positional
from mxd.backend.cli.console import task

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.trainer.analysis.labelling.rules import LabelResult
    from mxd.trainer.storage.run import Run


class LabelCommand(Command):
    """Label experts from their top examples with a heuristic; no language model is needed.

    Each label is a rule on tokens, scored on held-out examples. User labels are never changed. 'mxd index' runs this
    automatically.
    """

    examples: ClassVar = (
        "mxd label gpt2-l8-k32",
        "mxd label gpt2-l8-k32 --json",
        "mxd label gpt2-l8-k32 --data /data/mxd",
    )

    name: Positional[str]
    """Name or folder of the run."""

    def run(self) -> int:
        """Label, and print the scores of the labels."""
        from mxd.backend.database.engine import opened
        from mxd.trainer.storage.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        with opened(settings.database_url) as database:
            result = label_run(run, database)
        self.report_measured(asdict(result), _format_result(result), [run])
        return 0


def label_run(run: Run, database: Engine) -> LabelResult:
    """Label a run's experts and show progress.

    Raises:
        UserError: the run has no index.
        Interrupted: the task was cancelled. The labels are unchanged.
    """
    from mxd.trainer.analysis.labelling.rules import label_experts

    with task(f"Labelling {run.name}", "experts") as callbacks:
        return label_experts(run, database, callbacks=callbacks)


def _format_result(result: LabelResult) -> str:
    text = f"{result.run}: {result.labelled:,} of {result.experts:,} active experts labelled in {result.seconds:.0f} s"
    if result.balanced_accuracy is None or result.precision is None or result.recall is None:
        return text
    return (
        f"{text}; mean balanced accuracy on held-out examples {result.balanced_accuracy:.2f}, "
        f"precision {result.precision:.2f}, recall {result.recall:.2f}"
    )
