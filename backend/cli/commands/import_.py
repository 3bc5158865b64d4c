"""``mxd import``: a layer trained with another library, as a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, ClassVar

from mxd.backend.cli.base import Command, FlagsOf
from mxd.backend.cli.commands.share import absolute_path
from mxd.trainer.config.analysis import ImportConfig


class ImportCommand(Command):
    """Import a sparse layer trained with the paper's code, sparsify, SAELens or circuit-tracer as a run.

    Nothing in the files is executed. Index the run afterwards, like one of your own.
    """

    examples: ClassVar = (
        "mxd import EleutherAI/sae-llama-3-8b-32x --language-model meta-llama/Meta-Llama-3-8B --name l8 --layer 8",
        "mxd import ./checkpoint.pt --language-model openai-community/gpt2 --name paper --layer 8",
        "mxd import OWNER/NAME@REVISION --part layers.10 --language-model google/gemma-2-2b --name gemma",
    )

    config: Annotated[ImportConfig, FlagsOf(ImportConfig, positional=frozenset({"source"}))]

    def run(self) -> int:
        """Import, and print a summary."""
        from mxd.backend.database.engine import opened
        from mxd.trainer.storage.formats.import_run import import_run

        settings = self.settings()
        language_model = absolute_path(self.config.language_model)
        config = self.config.model_copy(update={"language_model": language_model})
        with opened(settings.database_url) as database:
            result = import_run(config, settings.data, database)
        self.report(
            asdict(result),
            f"{result.run}: {result.method} with {result.num_experts:,} experts, K = {result.k:,}, for layer "
            f"{result.layer} of {result.language_model} ({result.format}). Next: mxd index {result.run} --dataset TEXT "
            "--tokens COUNT",
        )
        return 0
