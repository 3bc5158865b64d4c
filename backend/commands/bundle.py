"""``mxd pack`` and ``mxd open``: a run with all that is known of it in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from backend.commands.console import progress, stoppable
from backend.commands.serve import announce, listen, open_browser, serve
from backend.commands.share import whole_path


class PackCommand(Command):
    """Write a run into one file: weights, contexts, labels, notes, lists, sessions and evaluations.

    Its language model is not in it, and no path of this machine.
    """

    name: CliPositionalArg[str]
    """Name of the run."""
    out: Path | None = None
    """File to write; by default NAME.mxd in the current folder."""

    def run(self) -> int:
        """Pack, and say where it is."""
        from backend.bundles.pack import pack
        from backend.database import opened, reading
        from trainer.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        out = self.out or Path(f"{run.name}.mxd")
        what = f"Packing {run.name}"
        with (
            opened(settings.store_url) as store,
            reading(store) as session,
            stoppable() as stop,
            progress(what, "tables") as shown,
        ):
            size = pack(session, run, out, shown, stop)
        self.report({"run": run.name, "out": str(out), "bytes": size}, f"{out}, {size / 1e6:.1f} MB")
        return 0


class OpenCommand(Command):
    """Open a file that mxd pack wrote, and serve it. Its contents are checked; nothing in it is executed."""

    file: CliPositionalArg[Path]
    """The bundle."""
    into: Path | None = None
    """Folder to unpack into the first time; by default beside the file, with its name."""
    language_model: str | None = None
    """Where its language model is, for routing and steering; browsing needs none."""
    host: str | None = None
    """Address to listen on (127.0.0.1: this machine only)."""
    port: Annotated[int | None, Field(ge=0, le=65_535)] = None
    """Port to listen on (8000); 0 takes a free one."""
    device: str | None = None
    """Where the language model runs: auto, cpu or cuda (auto)."""
    open: bool = False
    """Open the dashboard in a browser."""

    def run(self) -> int:
        """Unpack, then serve."""
        from backend.bundles.unpack import unpack

        folder = self.into or self.file.with_name(f"{self.file.stem}-opened")
        settings = self.settings(host=self.host, port=self.port, device=self.device)
        settings = settings.model_copy(update={"data": folder, "store": None})
        listen(settings.host, settings.port).close()
        unpack(self.file, folder, whole_path(self.language_model))
        serve(settings, open_browser if self.open else announce)
        return 0
