"""``mxd runs``: all trained runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from mxd.backend.cli.base import Command
from mxd.backend.cli.console import columns
from mxd.backend.cli.databases import existing_database
from mxd.trainer.errors import NotFoundError

if TYPE_CHECKING:
    from mxd.backend.schemas.runs import RunSummary
    from mxd.backend.settings import Settings

HEADER = (
    "run",
    "status",
    "language model",
    "method",
    "layer",
    "N",
    "K",
    "tokens",
    "norm. MSE",
    "routing",
    "indexed",
    "from",
)
TEXT_COLUMNS = 4


class RunsCommand(Command):
    """List all runs, newest first."""

    examples: ClassVar = ("mxd runs", "mxd runs --json", "mxd runs --data /data/mxd")

    def run(self) -> int:
        """Print a table."""
        try:
            runs = _read_runs(self.settings())
        except NotFoundError:
            runs = ()  # no database yet
        table = "\n".join(columns(HEADER, [_cells(run) for run in runs], TEXT_COLUMNS))
        text = table if runs else "No runs yet. Train one with 'mxd train', or explore the demo with 'mxd demo'."
        self.report([run.model_dump(mode="json") for run in runs], text)
        return 0


def _read_runs(settings: Settings) -> tuple[RunSummary, ...]:
    from mxd.backend.database.engine import reading
    from mxd.backend.inference.run_loader import RunLoader
    from mxd.backend.queries.runs import list_runs

    loader = RunLoader(settings.data, settings.runs_in_memory)
    with existing_database(settings) as database, reading(database) as session:
        return list_runs(session, loader.is_training).runs


def _cells(run: RunSummary) -> tuple[str, ...]:
    return (
        run.name,
        run.status,
        run.language_model,
        run.method,
        str(run.layer),
        f"{run.num_experts:,}",
        str(run.k),
        f"{run.trained_tokens:,}",
        f"{run.last_metric.normalized_mse:.4f}" if run.last_metric else "",
        "" if run.routing_share is None else f"{run.routing_share:.2f}",
        "" if run.indexed_tokens is None else f"{run.indexed_tokens:,}",
        run.origin or "",
    )
