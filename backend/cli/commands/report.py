"""``mxd report``: all measurements in one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from mxd.backend.cli.base import Command


class ReportCommand(Command):
    """Write one HTML file with all evaluations and probes of the database, and the commands that reproduce them."""

    examples: ClassVar = (
        "mxd report",
        "mxd report --out results/report.html",
        "mxd report --data /data/mxd --json",
    )

    out: Path = Path("report.html")
    """File to write."""

    def run(self) -> int:
        """Write the file, and print its size."""
        from mxd.backend.database.engine import opened, reading
        from mxd.backend.plots.report.page import report
        from mxd.trainer.utils.files import atomic_write, disk_errors

        with opened(self.settings().database_url) as database, reading(database) as session:
            content = report(session)
        with disk_errors(self.out):
            self.out.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self.out, content)
        size = self.out.stat().st_size
        self.report({"out": str(self.out), "bytes": size}, f"{self.out}, {size / 1e6:.1f} MB")
        return 0
