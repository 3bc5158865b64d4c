"""``mxd report``: every figure of what was measured, in one HTML file."""

from __future__ import annotations

from pathlib import Path

from backend.commands.base import Command


class ReportCommand(Command):
    """Write one HTML file with all evaluations and probes of the store, and the commands that repeat them."""

    output: Path = Path("report.html")
    """The file to write."""

    def run(self) -> int:
        """Write it, and say where it is."""
        from backend.database import open_database, reading
        from backend.report import report
        from trainer.files import disk_errors, write_whole

        store = open_database(self.settings().store_url)
        try:
            with reading(store) as session:
                content = report(session)
        finally:
            store.dispose()
        with disk_errors(self.output):
            self.output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.output, content)
        size = self.output.stat().st_size
        self.report({"output": str(self.output), "bytes": size}, f"{self.output}, {size / 1e6:.1f} MB")
        return 0
