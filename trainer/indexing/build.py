"""One pass over text that gives every expert its statistics and its contexts.

Shapes: S sequences of a batch, L tokens of a sequence, T = S * L tokens, K active.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sqlalchemy import Engine

from trainer.activations import capture_sequences
from trainer.config import IndexConfig
from trainer.errors import UserError
from trainer.files import only_one
from trainer.indexing.contexts import Contexts
from trainer.indexing.statistics import Pairs, Statistics, TokenCounts
from trainer.indexing.write import Gathered, write_index
from trainer.language_model import LanguageModel
from trainer.layers.sparse import Routing
from trainer.metrics import normalised_mse
from trainer.progress import Progress, ShouldStop, never, silent
from trainer.run import Run
from trainer.text import blocks

SEQUENCES_PER_BATCH = 64
LOCK_FILE = ".indexing"


class Stopped(UserError):
    """The pass was stopped; the store is as it was."""


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
    with only_one(run.folder / LOCK_FILE, f"The run {run.name} is being indexed"):
        gathered = _gather(run, config, language_model, progress, should_stop)
        progress(gathered.tokens, gathered.tokens, "writing to the store")
        contexts = write_index(store, run.name, config, gathered, run.tokenizer)
    return IndexResult(
        run=run.name,
        tokens=gathered.tokens,
        contexts=contexts,
        experts_active=int((gathered.statistics.active_tokens > 0).sum()),
        normalised_mse=gathered.normalised_mse,
    )


def _gather(
    run: Run, config: IndexConfig, language_model: LanguageModel, progress: Progress, should_stop: ShouldStop
) -> Gathered:
    layer = run.layer.to(language_model.device)
    num_experts = layer.config.num_experts
    statistics = Statistics(num_experts)
    token_counts = TokenCounts(num_experts, len(language_model.tokenizer))
    contexts = Contexts(num_experts, config.top, config.per_interval, config.seed)
    sequences: list[np.ndarray] = []
    tokens, errors = 0, 0.0
    stream = blocks(
        config.text,
        language_model.tokenizer,
        tokens=config.tokens,
        seed=config.seed,
        order="as-is",
        batch=SEQUENCES_PER_BATCH,
    )
    for token_ids_SL in stream:
        if should_stop():
            raise Stopped("Indexing was stopped; nothing was changed. Run the same command to start it again.")
        captured = capture_sequences(language_model, run.config.layer, token_ids_SL)
        with torch.no_grad():
            answer = layer(captured.read_by(layer))
            errors += normalised_mse(answer.output_TO, captured.output_TO).item() * token_ids_SL.size
        pairs = _pairs(answer.routing, token_ids_SL, first_sequence=len(sequences))
        grown = statistics.add(pairs)
        token_counts.add(pairs)
        contexts.add(pairs, statistics, grown)
        sequences.extend(token_ids_SL.astype(np.uint32))
        tokens += token_ids_SL.size
        progress(tokens, config.tokens, f"{int((statistics.active_tokens > 0).sum()):,} experts active")
    return Gathered(statistics, token_counts, contexts, sequences, tokens, errors / tokens)


def _pairs(routing: Routing, token_ids_SL: np.ndarray, first_sequence: int) -> Pairs:
    coefficients_TK = routing.coefficients_TK.double().cpu().numpy()
    indices_TK = routing.indices_TK.cpu().numpy()
    token_P, column_P = np.nonzero(coefficients_TK > 0)
    sequence_P, position_P = np.divmod(token_P, token_ids_SL.shape[1])
    return Pairs(
        expert=indices_TK[token_P, column_P],
        sequence=sequence_P + first_sequence,
        position=position_P,
        token=token_ids_SL.reshape(-1)[token_P].astype(np.int64),
        coefficient=coefficients_TK[token_P, column_P],
    )
