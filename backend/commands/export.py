"""``mxd export``: experts and contexts as files for other programs."""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from backend.commands.console import progress, stoppable
from backend.exporting.formats import ExportFormat


class ExportCommand(Command):
    """Write all experts of an indexed run, with their contexts and labels, into a new folder."""

    name: CliPositionalArg[str]
    """Name of the run, or its folder."""
    format: ExportFormat = "json"
    """json, csv, parquet: a file of experts and one of contexts. neuronpedia: the batches that SAEDashboard writes."""
    out: Path
    """Folder to write, new or empty."""
    model_id: str | None = None
    """What Neuronpedia calls the language model; by default the last part of its name here."""

    def run(self) -> int:
        """Export, and say what was written."""
        from backend.database import opened, reading
        from backend.exporting.export import Target, export_run
        from trainer.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        target = Target(self.out, self.format, self.model_id)
        what = f"Exporting {run.name}"
        with (
            opened(settings.store_url) as store,
            reading(store) as session,
            stoppable() as stop,
            progress(what, "experts") as shown,
        ):
            done = export_run(session, run, target, shown, stop)
        files = sorted(path.name for path in self.out.iterdir())
        size = sum((self.out / name).stat().st_size for name in files)
        self.report(
            {"run": run.name, "format": self.format, "out": str(self.out), "experts": done, "files": files},
            f"{self.out}: {done:,} experts of {run.name} in {len(files)} files, {size / 1e6:.1f} MB",
        )
        return 0
