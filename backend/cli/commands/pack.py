"""``mxd pack``: a run with its index, labels and results in one file."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from mxd.backend.cli.base import Command, Positional
from mxd.backend.cli.console import task


class PackCommand(Command):
    """Pack a run into one .mxd file: weights, top examples, labels, notes, lists, sessions and evaluations.

    The file holds neither the language model nor paths of this machine. Open it with 'mxd serve FILE'.
    """

    examples: ClassVar = (
        "mxd pack gpt2-l8-k32",
        "mxd pack gpt2-l8-k32 --out /tmp/layer8.mxd",
        "mxd serve gpt2-l8-k32.mxd",
    )

    name: Positional[str]
    """Name of the run."""
    out: Path | None = None
    """File to write (default: NAME.mxd in the current folder)."""

    def run(self) -> int:
        """Pack, and print the path and size of the file."""
        from mxd.backend.database.engine import opened, reading
        from mxd.backend.export.bundles.pack import pack
        from mxd.trainer.storage.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        out = self.out or Path(f"{run.name}.mxd")
        with (
            opened(settings.database_url) as database,
            reading(database) as session,
            task(f"Packing {run.name}", "tables") as callbacks,
        ):
            size = pack(session, run, out, callbacks)
        self.report({"run": run.name, "out": str(out), "bytes": size}, f"{out}, {size / 1e6:.1f} MB")
        return 0
