"""An index from text: gathered in one pass, by one process or several, and written in one transaction."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from trainer.config import IndexConfig
from trainer.distributed import ALONE, Ranks
from trainer.files import only_one
from trainer.indexing.gather import Gathered, gather
from trainer.indexing.merge import merge
from trainer.indexing.statistics import Statistics
from trainer.indexing.write import write_index
from trainer.language_model import LanguageModel
from trainer.progress import Progress, ShouldStop, never, silent
from trainer.registration import registered
from trainer.run import Run
from trainer.text import refuse_short

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
    ranks: Ranks = ALONE,
    progress: Progress = silent,
    should_stop: ShouldStop = never,
) -> IndexResult:
    """Read text, and replace the run's index in the store by a new one, all at once.

    Of several ranks each reads its share, and the first writes; the results of the others say what they have read.

    Raises:
        UserError: the text is too short, the store does not know the run, another process is indexing it, or
            ``should_stop`` said so; the index before, if any, stays.
    """
    refuse_short(config.text, language_model.tokenizer, config.tokens)
    with closing(Gathered.nothing(run, config, language_model)) as gathered, ExitStack() as locks:
        if ranks.is_first:
            locks.enter_context(only_one(run.folder / LOCK_FILE, f"The run {run.name} is being indexed"))
            with Session(store) as session:
                registered(session, run.name)  # before hours of reading, not after
        gather(gathered, run, config, language_model, ranks, progress, should_stop)
        merge(gathered, ranks)
        contexts = 0
        if ranks.is_first:
            progress(gathered.tokens, gathered.tokens, "writing to the store")
            contexts = write_index(store, run.name, config, gathered, run.tokenizer)
            run.write_units(_units(gathered.statistics))
        ranks.wait()  # so that none reports an index that is not there
        return IndexResult(
            run=run.name,
            tokens=gathered.tokens,
            contexts=contexts,
            experts_active=int((gathered.statistics.active_tokens > 0).sum()),
            normalised_mse=gathered.normalised_mse,
        )


def _units(statistics: Statistics) -> dict[int, float]:
    """Expert -> 99th percentile of its coefficient, of those that were active."""
    p99 = statistics.percentiles(0.99)
    return {int(expert): float(p99[expert]) for expert in np.nonzero(statistics.active_tokens > 0)[0]}
