"""``mxd label``: name every expert by what tells its contexts from other text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from backend.commands.console import progress, stoppable

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from trainer.labelling import LabelResult
    from trainer.run import Run


class LabelCommand(Command):
    """Label experts from their index, without any other program: each label is a rule on tokens, tested on contexts
    held back. Labels that people gave are never touched. ``mxd index`` does this by itself."""

    name: CliPositionalArg[str]
    """Name of the run, or its folder."""

    def run(self) -> int:
        """Label, and say how well the labels fit."""
        from backend.database import open_database
        from trainer.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        store = open_database(settings.store_url)
        result = label_run(run, store)
        store.dispose()
        self.report(asdict(result), _in_words(result))
        return 0


def label_run(run: Run, store: Engine) -> LabelResult:
    """Label a run's experts and show how far it is.

    Raises:
        UserError: the run has no index.
        Interrupted: somebody asked to stop; the labels are as they were.
    """
    from trainer.labelling import label_experts

    with stoppable() as stop, progress(f"Labelling {run.name}", "experts") as shown:
        return label_experts(run, store, progress=shown, should_stop=stop)


def _in_words(result: LabelResult) -> str:
    found = f"{result.run}: {result.labelled:,} of {result.experts:,} active experts labelled in {result.seconds:.0f} s"
    if result.balanced_accuracy is None or result.precision is None or result.recall is None:
        return found
    return (
        f"{found}; on text held back, mean balanced accuracy {result.balanced_accuracy:.2f}, "
        f"precision {result.precision:.2f}, recall {result.recall:.2f}"
    )
