"""``mxd runs``: what has been fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.commands.base import Command
from backend.commands.tables import columns

if TYPE_CHECKING:
    from backend.schemas import RunSummary

HEADER = ("run", "status", "language model", "method", "layer", "N", "K", "tokens", "normalised MSE", "indexed", "from")
WORDS = 4
"""Columns at the left that hold words."""


class RunsCommand(Command):
    """List all runs, the newest first."""

    def run(self) -> int:
        """Print them as a table."""
        from backend.database import open_database, reading
        from backend.library import Library
        from backend.queries.runs import list_runs

        settings = self.settings()
        library = Library(settings.data, settings.runs_in_memory)
        store = open_database(settings.store_url)
        with reading(store) as session:
            runs = list_runs(session, library.is_fitting).runs
        store.dispose()
        table = "\n".join(columns(HEADER, [_cells(run) for run in runs], WORDS))
        words = table if runs else "No runs yet; fit one with mxd train."
        self.report([run.model_dump(mode="json") for run in runs], words)
        return 0


def _cells(run: RunSummary) -> tuple[str, ...]:
    return (
        run.name,
        run.status,
        run.language_model,
        run.method,
        str(run.layer) if run.layer == run.last_layer else f"{run.layer} to {run.last_layer}",
        f"{run.num_experts:,}",
        str(run.k),
        f"{run.tokens_done:,}",
        f"{run.last_metric.normalised_mse:.4f}" if run.last_metric else "",
        "" if run.indexed_tokens is None else f"{run.indexed_tokens:,}",
        run.origin or "",
    )
