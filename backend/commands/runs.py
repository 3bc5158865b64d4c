"""``mxd runs``: what has been fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.commands.base import Command

if TYPE_CHECKING:
    from backend.schemas import RunSummary

HEADER = ("run", "status", "language model", "layer", "method", "N", "K", "tokens", "normalised MSE", "indexed", "from")


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
        words = _table([HEADER, *(_cells(run) for run in runs)]) if runs else "No runs yet; fit one with mxd train."
        self.report([run.model_dump(mode="json") for run in runs], words)
        return 0


def _cells(run: RunSummary) -> tuple[str, ...]:
    return (
        run.name,
        run.status,
        run.language_model,
        str(run.layer),
        run.method,
        f"{run.num_experts:,}",
        str(run.k),
        f"{run.tokens_done:,}",
        f"{run.last_metric.normalised_mse:.4f}" if run.last_metric else "",
        "" if run.indexed_tokens is None else f"{run.indexed_tokens:,}",
        run.origin or "",
    )


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
