"""Build an index in one pass over a text, in one or several processes, and write it in one transaction."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Engine

from mxd.trainer.analysis.indexing.collect import IndexBuilder, collect
from mxd.trainer.analysis.indexing.merge import merge
from mxd.trainer.analysis.indexing.save import write_index
from mxd.trainer.analysis.indexing.statistics import ExpertStatistics
from mxd.trainer.config import IndexConfig
from mxd.trainer.data.activation_cache import ActivationCache
from mxd.trainer.data.sequences import check_text_length
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.distributed import SINGLE_PROCESS, ProcessGroup
from mxd.trainer.utils.files import exclusive_lock
from mxd.trainer.utils.html import labelled_values

LOCK_FILE = ".indexing"


@dataclass(frozen=True)
class IndexResult:
    """Summary that ``mxd index`` reports."""

    run: str
    tokens: int
    examples: int
    """Stored top examples and random examples."""
    active_experts: int
    normalized_mse: float
    """Mean over tokens of ‖ŷ − y‖² / ‖y‖². 0 is a perfect layer; 1 is the score of predicting zero."""

    def _repr_html_(self) -> str:
        values = {
            "tokens": f"{self.tokens:,}",
            "examples": f"{self.examples:,}",
            "active experts": f"{self.active_experts:,}",
            "normalised MSE": f"{self.normalized_mse:.4f}",
        }
        return labelled_values([("indexed", self.run), *values.items()])


def build_index(
    run: Run,
    config: IndexConfig,
    language_model: LanguageModel,
    database: Engine,
    *,
    group: ProcessGroup = SINGLE_PROCESS,
    cache: ActivationCache | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> IndexResult:
    """Read a text, or its activations in a cache, and replace the run's index in the database, in one transaction.

    Several processes share the text, and the main one writes. The results of the others describe only their share.

    Raises:
        UserError: the text is too short, or another process is indexing the run. The previous index is unchanged.
        CancelledError: the task was cancelled. The previous index is unchanged.
    """
    if cache is None:
        check_text_length(config.text, language_model.tokenizer, config.tokens)
    else:
        cache.check_text(config.text, config.tokens)
    with closing(IndexBuilder.create(run, config, language_model)) as builder, ExitStack() as locks:
        if group.is_main:
            locks.enter_context(exclusive_lock(run.folder / LOCK_FILE, f"The run {run.name} is being indexed"))
            register_run(run, database)
        collect(builder, run, config, language_model, group, callbacks, cache)
        merge(builder, group)

        def write() -> int:
            callbacks.on_progress(builder.tokens, builder.tokens, "writing to the database")
            count = write_index(database, run.name, config, builder, run.tokenizer)
            run.write_units(_units(builder.statistics))
            return count

        examples = group.take_turn(write) or 0
        return IndexResult(
            run=run.name,
            tokens=builder.tokens,
            examples=examples,
            active_experts=int((builder.statistics.active_tokens > 0).sum()),
            normalized_mse=builder.normalized_mse,
        )


def _units(statistics: ExpertStatistics) -> dict[int, float]:
    """99th percentile of the coefficient of each active expert."""
    p99 = statistics.percentiles(0.99)
    return {int(expert): float(p99[expert]) for expert in np.nonzero(statistics.active_tokens > 0)[0]}
