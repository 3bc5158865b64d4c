"""``mxd import``: a layer that another program fitted, as a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from backend.commands.share import whole_path
from trainer.config import RunName


class ImportCommand(Command):
    """Make a run of a layer that another program fitted: the paper's code, sparsify, SAELens or circuit-tracer.

    Nothing in the files is executed. Index the run afterwards, as one of your own.
    """

    source: CliPositionalArg[str]
    """A file, a folder, or a repository of the hub as OWNER/NAME, also with @REVISION."""
    language_model: str
    """Hub name or local folder of the language model whose MLP the layer stands for."""
    name: RunName
    """Name of the run."""
    layer: Annotated[int | None, Field(ge=0)] = None
    """Which block's MLP, from 0; where the source says so it may be left out."""
    part: str | None = None
    """Folder or file of the layer in the source, where that holds several."""

    def run(self) -> int:
        """Import, and say what was found."""
        from backend.database import open_database
        from trainer.importing import ImportConfig, import_run

        settings = self.settings()
        config = ImportConfig(
            source=self.source,
            name=self.name,
            language_model=whole_path(self.language_model) or self.language_model,
            layer=self.layer,
            part=self.part,
        )
        store = open_database(settings.store_url)
        try:
            result = import_run(config, settings.data, store)
        finally:
            store.dispose()
        self.report(
            asdict(result),
            f"{result.run}: {result.method} of {result.num_experts:,} experts, K = {result.k:,}, for layer "
            f"{result.layer} of {result.language_model} ({result.format}); next: mxd index {result.run} --text … "
            "--tokens …",
        )
        return 0
