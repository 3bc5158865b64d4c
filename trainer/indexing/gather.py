"""What one pass over a text brings together for an index.

On a GPU the language model and the gate run in a thread of their own, a batch ahead of the counting, so that neither
waits for the other. On a CPU both take turns: the products have all cores, and a thread beside them makes each wait for
the one that was taken from it. No more than a bounded part of the text is in memory at any time.

Shapes: S sequences of a batch, L tokens of a sequence, T = S * L tokens, I input width, K active.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.activations import capture_sequences
from trainer.ahead import ahead
from trainer.config import IndexConfig
from trainer.distributed import ALONE, Ranks
from trainer.errors import UserError
from trainer.indexing.contexts import Contexts, Kept, Sequences
from trainer.indexing.pairs import Ints, active_pairs
from trainer.indexing.sample import RoutedSample
from trainer.indexing.statistics import Statistics
from trainer.indexing.token_counts import TokenCounts
from trainer.language_model import LanguageModel
from trainer.layers.sparse import Routing, SparseLayer
from trainer.metrics import error_of
from trainer.progress import Progress, ShouldStop
from trainer.run import Run
from trainer.text import blocks

TOKENS_PER_BATCH = 8192
SCORES_AT_ONCE = 1 << 26
"""Scores of the gate that are held together: bounds its memory for any number of experts."""
MEASURED_EVERY = 8
"""The layer's error is measured on every so manieth batch; routing needs neither decoder nor original MLP."""
_BATCHES_AHEAD = 2


class Stopped(UserError):
    """The pass was stopped; the store is as it was."""


class Batch(NamedTuple):
    """A batch that has gone through language model and gate."""

    token_ids_SL: NDArray[np.int64]
    numbers_S: Ints
    """Each sequence's place in the text, ascending."""
    routing: Routing
    error: Tensor | None
    """Normalised MSE, where it was measured."""


@dataclass
class Gathered:
    """Everything that an index is made of, as far as the text has been read."""

    statistics: Statistics
    token_counts: TokenCounts
    contexts: Contexts
    sequences: Sequences
    sample: RoutedSample
    tokens: int = 0
    error_sum: float = 0.0
    """Of normalised MSE times tokens, where it was measured."""
    measured_tokens: int = 0

    @classmethod
    def nothing(cls, run: Run, config: IndexConfig, language_model: LanguageModel) -> Gathered:
        """Before the first batch."""
        num_experts = run.layer_config.num_experts
        return cls(
            Statistics(num_experts),
            TokenCounts(num_experts, len(language_model.tokenizer), run.folder),
            Contexts(num_experts, config.top, config.per_interval, config.seed),
            Sequences(),
            RoutedSample(config.seed, config.text.context),
        )

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        pairs, token_P = active_pairs(batch.routing, batch.token_ids_SL.shape[1], batch.numbers_S)
        grown = self.statistics.add(pairs)
        self.token_counts.add(pairs, batch.token_ids_SL.reshape(-1)[token_P])
        self.contexts.add(pairs, self.statistics, grown)
        self.sequences.add(batch.token_ids_SL, batch.numbers_S)
        self.sample.add(pairs, batch.token_ids_SL, batch.numbers_S)
        self.tokens += batch.token_ids_SL.size
        if batch.error is not None:
            self.error_sum += batch.error.item() * batch.token_ids_SL.size
            self.measured_tokens += batch.token_ids_SL.size
        if self.contexts.wants_settling:
            self.settle()

    def settle(self) -> Kept:
        """Forget what no longer belongs; returns what is kept."""
        kept = self.contexts.settle(self.statistics)
        self.sequences.keep(self.contexts.pairs.sequence)
        return kept

    def close(self) -> None:
        """Let go of what lies on disk."""
        self.token_counts.close()

    @property
    def normalised_mse(self) -> float:
        """Of the layer, over the batches on which it was measured; rounded as ``Statistics.means`` is."""
        return float(np.float32(self.error_sum / max(self.measured_tokens, 1)))


def gather(
    gathered: Gathered,
    run: Run,
    config: IndexConfig,
    language_model: LanguageModel,
    ranks: Ranks,
    progress: Progress,
    should_stop: ShouldStop,
) -> None:
    """Read the text and count everything in it; of several ranks each its share.

    Raises:
        UserError: the text is too short.
        Stopped: ``should_stop`` said so.
    """
    batches = routed(run, config, language_model, ranks)
    if language_model.device_of(run.config.layer).type != "cpu":
        batches = ahead(batches, _BATCHES_AHEAD)
    with closing(batches):
        for batch in batches:
            if should_stop():
                raise Stopped("Indexing was stopped; nothing was changed. Run the same command to start it again.")
            gathered.add(batch)
            active = int((gathered.statistics.active_tokens > 0).sum())
            progress(min(gathered.tokens * ranks.world, config.tokens), config.tokens, f"{active:,} experts active")


def routed(run: Run, config: IndexConfig, language_model: LanguageModel, ranks: Ranks = ALONE) -> Generator[Batch]:
    """The text, batch by batch, through language model and gate; of several ranks each takes every so manieth."""
    layer = run.layer.to(language_model.device_of(run.config.layer))
    sequences = max(1, TOKENS_PER_BATCH // config.text.context)
    stream = blocks(
        config.text, language_model.tokenizer, tokens=config.tokens, seed=config.seed, order="as-is", batch=sequences
    )
    for number, token_ids_SL in enumerate(stream):
        if number % ranks.world != ranks.rank:
            continue
        numbers_S = number * sequences + np.arange(len(token_ids_SL))
        if number % MEASURED_EVERY:
            routing, error = route_in_parts(layer, _read(layer, run.config.layer, language_model, token_ids_SL)), None
        else:
            routing, error = _measured(layer, run.config.layers, language_model, token_ids_SL)
        yield Batch(token_ids_SL, numbers_S, routing, error)


@torch.inference_mode()
def route_in_parts(layer: SparseLayer, x_TI: Tensor) -> Routing:
    """The layer's routing, some tokens at a time."""
    tokens = max(1, SCORES_AT_ONCE // layer.config.num_experts)
    parts = [layer.route(part_TI) for part_TI in x_TI.split(tokens)]
    return Routing(*(torch.cat(fields) for fields in zip(*parts, strict=True)))


def _read(layer: SparseLayer, index: int, language_model: LanguageModel, token_ids_SL: NDArray[np.int64]) -> Tensor:
    """What the layer reads of a batch, and nothing that it does not."""
    if layer.reads == "mlp-input":
        return language_model.mlp_inputs([index], torch.from_numpy(token_ids_SL))[index].float()
    return capture_sequences(language_model, [index], token_ids_SL).read_by(layer)


@torch.inference_mode()
def _measured(
    layer: SparseLayer, layers: Sequence[int], language_model: LanguageModel, token_ids_SL: NDArray[np.int64]
) -> tuple[Routing, Tensor]:
    captured = capture_sequences(language_model, layers, token_ids_SL)
    x_TI = captured.read_by(layer)
    routing = route_in_parts(layer, x_TI)
    return routing, error_of(layer, layer.decode(layer.dense_output(x_TI), routing), captured.output_TO)
