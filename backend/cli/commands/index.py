"""``mxd index``: statistics and top examples of every expert."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.backend.cli.commands.label import label_run
from mxd.backend.cli.console import StopRequest, progress_of, stoppable
from mxd.trainer.config import IndexConfig, TextConfig
from mxd.trainer.utils.callbacks import Callbacks

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.trainer.analysis.indexing.build import IndexResult
    from mxd.trainer.storage.run import Run
    from mxd.trainer.utils.distributed import ProcessGroup


class IndexCommand(ModelCommand):
    """Read text, collect statistics and top examples of every expert, and label the experts.

    Replaces an earlier index of the run.
    """

    examples: ClassVar = (
        "mxd index gpt2-l8-k32 --dataset corpus.jsonl --tokens 5M",
        "mxd index gpt2-l8-k32 --dataset HuggingFaceFW/fineweb --tokens 20M --top-examples 50",
        "mxd index gpt2-l8-k32 --dataset corpus.jsonl --tokens 1M --device cuda --json",
    )

    shares_work: ClassVar = True

    name: Positional[str]
    """Name or folder of the run."""
    config: IndexConfig
    cache: Path | None = None
    """Folder of activations that mxd train --cache wrote for the same dataset. The text is then read from it, in its
    order, without forward passes of the language model."""

    def run(self) -> int:
        """Index and label, and print a summary."""
        from mxd.backend.database.engine import open_database
        from mxd.trainer.storage.run import Run
        from mxd.trainer.utils.distributed import init_process_group

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        config = self.config.model_copy(update={"text": with_context_of(run, self.config.text)})
        database = open_database(settings.database_url)
        # torchrun stops all processes if one fails. They listen until they have found out which.
        with stoppable() as stop, init_process_group() as group:
            result = self._index(run, config, database, group, stop)
            labels = label_run(run, database) if group.is_main else None
        database.dispose()
        if labels is None:
            return 0
        self.report(
            {**asdict(result), "labelled": labels.labelled},
            f"{result.run}: {result.tokens:,} tokens, {result.examples:,} top examples, "
            f"{result.active_experts:,} active experts, {labels.labelled:,} labelled, "
            f"normalised MSE {result.normalized_mse:.4f}",
        )
        return 0

    def _index(
        self, run: Run, config: IndexConfig, database: Engine, group: ProcessGroup, stop: StopRequest
    ) -> IndexResult:
        from mxd.trainer.analysis.indexing.build import build_index
        from mxd.trainer.data.activation_cache import ActivationCache
        from mxd.trainer.utils.memory import keep_freed_memory

        keep_freed_memory()
        language_model = self.load_language_model(run.language_model_source, group)
        with progress_of(group, f"Indexing {run.name}") as progress:
            return build_index(
                run,
                config,
                language_model,
                database,
                group=group,
                cache=ActivationCache.open(self.cache, language_model.device) if self.cache else None,
                callbacks=Callbacks(progress, stop),
            )


def with_context_of(run: Run, text: TextConfig) -> TextConfig:
    """Return ``text`` with the context length and start token that the run was trained with, unless given."""
    trained = run.config.text.model_dump(include={"context_length", "start_token"})
    return text.model_copy(update={name: trained[name] for name in trained if name not in text.model_fields_set})
