"""``mxd export``: experts and top examples as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from mxd.backend.cli.base import Command, Positional
from mxd.backend.cli.console import task
from mxd.backend.export.export import ExportFormat


class ExportCommand(Command):
    """Write all experts of an indexed run, with their top examples and labels, to a new folder."""

    examples: ClassVar = (
        "mxd export gpt2-l8-k32 --out experts",
        "mxd export gpt2-l8-k32 --format parquet --out experts",
        "mxd export gpt2-l8-k32 --format neuronpedia --model-id gpt2-small --out batches",
    )

    name: Positional[str]
    """Name or folder of the run."""
    format: ExportFormat = "json"
    """json, csv, parquet: one file of experts and one of top examples. neuronpedia: batches as SAEDashboard writes."""
    out: Path
    """Folder to write. It must be new or empty."""
    model_id: str | None = None
    """Neuronpedia's id of the language model (default: the last part of its name)."""

    def run(self) -> int:
        """Export, and print a summary."""
        from mxd.backend.database.engine import opened, reading
        from mxd.backend.export.export import Target, export_run
        from mxd.trainer.storage.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        target = Target(self.out, self.format, self.model_id)
        with (
            opened(settings.database_url) as database,
            reading(database) as session,
            task(f"Exporting {run.name}", "experts") as callbacks,
        ):
            experts = export_run(session, run, target, callbacks)
        files = sorted(path.name for path in self.out.iterdir())
        size = sum((self.out / name).stat().st_size for name in files)
        self.report(
            {"run": run.name, "format": self.format, "out": str(self.out), "experts": experts, "files": files},
            f"{self.out}: {experts:,} experts of {run.name} in {len(files)} files, {size / 1e6:.1f} MB",
        )
        return 0
