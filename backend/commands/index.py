"""``mxd index``: statistics and contexts of every expert into the store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command, part_of
from backend.commands.console import progress_of, stoppable
from backend.commands.label import label_run
from trainer.config import Count, IndexConfig, TextConfig

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from trainer.distributed import Ranks
    from trainer.indexing import IndexResult
    from trainer.run import Run


class IndexCommand(TextConfig, Command):
    """Read text, and keep statistics and contexts of every expert; replaces the index that the run had."""

    name: CliPositionalArg[str]
    """Name of the run, or its folder."""
    tokens: Count
    """Tokens to read, such as 1M."""
    top: Annotated[int, Field(gt=0, le=1000)] = 20
    """Contexts kept of an expert's largest coefficients, at most one a sequence."""
    per_interval: Annotated[int, Field(ge=0, le=100)] = 3
    """Contexts kept at random from each interval of coefficients."""
    top_tokens: Annotated[int, Field(gt=0, le=100)] = 12
    """Tokens kept of those it is active on most often."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the random contexts."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""

    def run(self) -> int:
        """Index, and say what was found."""
        from backend.database import open_database
        from trainer.distributed import joined
        from trainer.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        # Fitted on sequences of one length, the layer is read on sequences of that length unless told otherwise.
        context = self.context if "context" in self.model_fields_set else run.config.text.context
        config = part_of(IndexConfig, self, text=part_of(TextConfig, self, context=context))
        store = open_database(settings.store_url)
        with joined() as ranks:
            result = index_run(run, config, store, self.device, ranks)
            labelled = label_run(run, store) if ranks.is_first else None
        store.dispose()
        if labelled is None:
            return 0
        self.report(
            {**asdict(result), "labelled": labelled.labelled},
            f"{result.run}: {result.tokens:,} tokens, {result.contexts:,} contexts, "
            f"{result.experts_active:,} active experts, {labelled.labelled:,} labelled, "
            f"normalised MSE {result.normalised_mse:.4f}",
        )
        return 0


def index_run(run: Run, config: IndexConfig, store: Engine, device: str, ranks: Ranks) -> IndexResult:
    """Index a run and show how far it is.

    Raises:
        UserError: the text, the run or the language model cannot be used.
        Interrupted: somebody asked to stop; the store is as it was.
    """
    from trainer.heap import keep_freed_memory
    from trainer.indexing import build_index
    from trainer.language_model import LanguageModel

    keep_freed_memory()
    language_model = LanguageModel.load(run.language_model_source, ranks.device(device))
    with stoppable() as stop, progress_of(ranks, f"Indexing {run.name}") as shown:
        return build_index(run, config, language_model, store, ranks=ranks, progress=shown, should_stop=stop)
