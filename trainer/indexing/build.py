"""An index from text: gathered in one pass, written in one transaction."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from sqlalchemy import Engine

from trainer.config import IndexConfig
from trainer.files import only_one
from trainer.indexing.gather import Gathered, gather
from trainer.indexing.write import write_index
from trainer.language_model import LanguageModel
from trainer.progress import Progress, ShouldStop, never, silent
from trainer.run import Run

LOCK_FILE = ".indexing"


@dataclass(frozen=True)
class IndexResult:
    """What ``mxd index`` reports."""

    run: str
    tokens: int
    contexts: int
    experts_active: int
    normalised_mse: float


def build_index(
    run: Run,
    config: IndexConfig,
    language_model: LanguageModel,
    store: Engine,
    *,
    progress: Progress = silent,
    should_stop: ShouldStop = never,
) -> IndexResult:
    """Read text, and replace the run's index in the store by a new one, all at once.

    Raises:
        UserError: the text is too short, the store does not know the run, another process is indexing it, or
            ``should_stop`` said so; the index before, if any, stays.
    """
    with (
        only_one(run.folder / LOCK_FILE, f"The run {run.name} is being indexed"),
        closing(Gathered.nothing(run, config, language_model)) as gathered,
    ):
        gather(gathered, run, config, language_model, progress, should_stop)
        progress(gathered.tokens, gathered.tokens, "writing to the store")
        contexts = write_index(store, run.name, config, gathered, run.tokenizer)
        return IndexResult(
            run=run.name,
            tokens=gathered.tokens,
            contexts=contexts,
            experts_active=int((gathered.statistics.active_tokens > 0).sum()),
            normalised_mse=gathered.normalised_mse,
        )
