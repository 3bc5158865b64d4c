"""Collection of an index's statistics and examples in one pass over a text, in bounded memory.

On a GPU, the language model and the gate run in a separate thread, ahead of the counting. On a CPU they alternate,
because the matrix products already use all cores.

Several processes read shares of the text, and the main process merges their data. The result equals that of a single
process: counts are summed, histogram ranges are widened, and each expert's examples are selected again among those of
all processes.

Shapes: S sequences of a batch, L tokens of a sequence, T = S * L tokens, I input width, K active.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mxd.trainer.analysis.indexing.examples import RoutedSample, SelectedExamples, StoredSequences, TopExamples
from mxd.trainer.analysis.indexing.statistics import ActivePairs, ExpertStatistics, Ints, TokenCounts, active_pairs
from mxd.trainer.config import IndexConfig
from mxd.trainer.data.activation_cache import ActivationCache
from mxd.trainer.data.activations import capture_layers
from mxd.trainer.data.sequences import sequence_batches
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.layers.base import Routing, SparseLayer, normalized_mse
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.distributed import SINGLE_PROCESS, ProcessGroup, prefetch


def merge(builder: IndexBuilder, group: ProcessGroup) -> None:
    """Send every process's data to the main process and merge it into the main process's ``builder``."""
    if group.is_single:
        return
    builder.prune()
    if not group.is_main:
        _send(builder, group)
        return
    parts = [_receive(builder, group, source) for source in range(1, group.world_size)]
    builder.examples.merge(parts, builder.statistics)


def _send(builder: IndexBuilder, group: ProcessGroup) -> None:
    statistics = builder.statistics
    group.send([builder.tokens, builder.measured_tokens, builder.error_sum], 0)
    group.send(
        [
            statistics.active_tokens,
            statistics.sums,
            statistics.largest,
            statistics.histogram_NB,
            statistics.exponents,
            *statistics.tails.arrays(statistics.active_tokens),
        ],
        0,
    )
    group.send(builder.examples.pairs, 0)
    group.send([builder.sequences.token_ids, builder.sample], 0)
    group.send((words for _, _, words in builder.token_counts.chunks() if len(words)), 0)
    group.send([None], 0)


def _receive(builder: IndexBuilder, group: ProcessGroup, source: int) -> ActivePairs:
    """Merge another process's data, except for its active pairs, which are returned."""
    tokens, measured_tokens, error_sum = group.receive(3, source)
    builder.tokens += tokens
    builder.measured_tokens += measured_tokens
    builder.error_sum += error_sum
    other = ExpertStatistics(len(builder.statistics.active_tokens))
    other.active_tokens, other.sums, other.largest, other.histogram_NB, other.exponents, *tails = group.receive(
        8, source
    )
    other.tails.expert, other.tails.value, other.tails.dropped = tails
    builder.statistics.merge(other)
    pairs = ActivePairs(*group.receive(len(ActivePairs._fields), source))
    token_ids, sample = group.receive(2, source)
    builder.sequences.token_ids.update(token_ids)
    builder.sample.merge(sample)
    while (words := group.receive(1, source)[0]) is not None:
        builder.token_counts.add_run(words)
    return pairs


TOKENS_PER_BATCH = 8192
MAX_SCORES = 1 << 26
"""Gate scores computed together. Bounds the gate's memory for any number of experts."""
MEASURE_INTERVAL = 8
"""The layer's error is measured on every n-th batch only. Routing needs neither the decoder nor the original MLP."""
_BATCHES_AHEAD = 2


class Batch(NamedTuple):
    """A routed batch."""

    token_ids_SL: NDArray[np.int64]
    sequence_ids_S: Ints
    """Index of each sequence in the text, ascending."""
    routing: Routing
    error: Tensor | None
    """Normalised MSE of the layer on this batch; None if not measured."""


class IndexBuilder:
    """Data of an index, accumulated batch by batch."""

    def __init__(self, run: Run, config: IndexConfig, language_model: LanguageModel) -> None:
        num_experts = run.layer_config.num_experts
        self.statistics = ExpertStatistics(num_experts)
        self.token_counts = TokenCounts(num_experts, language_model.architecture.vocabulary_size, run.folder)
        self.examples = TopExamples(num_experts, config.top_examples, config.examples_per_bin, config.seed)
        self.sequences = StoredSequences()
        self.sample = RoutedSample(config.seed, config.text.context_length)
        self.tokens = self.measured_tokens = 0
        self.error_sum = 0.0
        """Sum over measured tokens of the normalised MSE."""

    def add_batch(self, batch: Batch) -> None:
        """Add a batch, and prune the examples when enough are pending."""
        pairs, token_P = active_pairs(batch.routing, batch.token_ids_SL.shape[1], batch.sequence_ids_S)
        widened = self.statistics.add(pairs)
        self.token_counts.add(pairs, batch.token_ids_SL.reshape(-1)[token_P])
        self.examples.add(pairs, self.statistics, widened)
        self.sequences.add(batch.token_ids_SL, batch.sequence_ids_S)
        self.sample.add(pairs, batch.token_ids_SL, batch.sequence_ids_S)
        self.tokens += batch.token_ids_SL.size
        if batch.error is not None:
            self.error_sum += batch.error.item() * batch.token_ids_SL.size
            self.measured_tokens += batch.token_ids_SL.size
        if self.examples.needs_pruning:
            self.prune()

    def prune(self) -> SelectedExamples:
        """Drop examples and sequences that are no longer selected. Returns the selected examples."""
        selected = self.examples.prune(self.statistics)
        self.sequences.keep(self.examples.pairs.sequence)
        return selected

    def close(self) -> None:
        """Delete temporary files."""
        self.token_counts.close()

    @property
    def normalized_mse(self) -> float:
        """Normalised MSE of the layer over the measured batches, rounded to float32 like ``ExpertStatistics.means``."""
        return float(np.float32(self.error_sum / max(self.measured_tokens, 1)))


def collect(
    builder: IndexBuilder,
    run: Run,
    config: IndexConfig,
    language_model: LanguageModel,
    group: ProcessGroup,
    callbacks: Callbacks,
    cache: ActivationCache | None = None,
) -> None:
    """Read the text, or the activations of a cache, and add it to the builder. Of several processes, each reads its
    share. Raises UserError if the text is too short."""
    if cache is None:
        batches = route_batches(run, config, language_model, group)
    else:
        batches = route_cached(run, config, language_model, cache, group)
    if language_model.device_of(run.config.layer).type != "cpu":
        batches = prefetch(batches, _BATCHES_AHEAD)
    with closing(batches):
        for batch in batches:
            callbacks.check_cancelled()
            builder.add_batch(batch)
            active = int((builder.statistics.active_tokens > 0).sum())
            callbacks.on_progress(
                min(builder.tokens * group.world_size, config.tokens), config.tokens, f"{active:,} experts active"
            )


def route_batches(
    run: Run, config: IndexConfig, language_model: LanguageModel, group: ProcessGroup = SINGLE_PROCESS
) -> Generator[Batch]:
    """Yield the text in batches, routed. Of several processes, each yields every n-th batch."""
    layer = run.config.layer
    sparse_layer = run.layer.to(language_model.device_of(layer))
    sequences = max(1, TOKENS_PER_BATCH // config.text.context_length)
    stream = sequence_batches(
        config.text, language_model.tokenizer, tokens=config.tokens, seed=config.seed, order="shuffled", batch=sequences
    )
    for number, token_ids_SL in enumerate(stream):
        if number % group.world_size != group.rank:
            continue
        sequence_ids_S = number * sequences + np.arange(len(token_ids_SL))
        if number % MEASURE_INTERVAL:
            routing = route_in_parts(sparse_layer, layer_input(sparse_layer, layer, language_model, token_ids_SL))
            error = None
        else:
            captured = capture_layers(language_model, [layer], token_ids_SL)[layer]
            routing, error = _routed(sparse_layer, captured, measured=True)
        yield Batch(token_ids_SL, sequence_ids_S, routing, error)


def route_cached(
    run: Run, config: IndexConfig, language_model: LanguageModel, cache: ActivationCache, group: ProcessGroup
) -> Generator[Batch]:
    """Yield the text of a cache in batches, routed, in the order of the cache."""
    sparse_layer = run.layer.to(cache.device)
    context = config.text.context_length
    size, left = max(1, TOKENS_PER_BATCH // context), max(1, config.tokens // context)
    batches, done = count(), 0
    for index, rows_SL in enumerate(cache.token_ids(config.text, language_model.tokenizer)):
        captured = cache.activations(run.config.layer, index)
        for first in range(0, min(len(rows_SL), left - done), size):
            number, ids_SL = next(batches), rows_SL[first : first + min(size, left - done)].astype(np.int64)
            if number % group.world_size == group.rank:
                tokens = slice(first * context, (first + len(ids_SL)) * context)
                part = MlpActivations(*(values[tokens] for values in captured))
                measured = number % MEASURE_INTERVAL == 0
                yield Batch(ids_SL, done + np.arange(len(ids_SL)), *_routed(sparse_layer, part, measured))
            done += len(ids_SL)


@torch.inference_mode()
def _routed(sparse_layer: SparseLayer, captured: MlpActivations, measured: bool) -> tuple[Routing, Tensor | None]:
    x_TI = captured.inputs_for(sparse_layer)
    routing = route_in_parts(sparse_layer, x_TI)
    if not measured:
        return routing, None
    return routing, normalized_mse(sparse_layer.decode(sparse_layer.dense_output(x_TI), routing), captured.output_TO)


@torch.inference_mode()
def route_in_parts(sparse_layer: SparseLayer, x_TI: Tensor) -> Routing:
    """Route tokens in parts of bounded memory."""
    tokens = max(1, MAX_SCORES // sparse_layer.config.num_experts)
    parts = [sparse_layer.route(part_TI) for part_TI in x_TI.split(tokens)]
    return Routing(*(torch.cat(fields) for fields in zip(*parts, strict=True)))


def layer_input(
    sparse_layer: SparseLayer, layer: int, language_model: LanguageModel, token_ids_SL: NDArray[np.int64]
) -> Tensor:
    """Input of the sparse layer, [T, I]. Runs no more of the language model than needed."""
    if sparse_layer.reads == "mlp-input":
        return language_model.mlp_inputs([layer], torch.from_numpy(token_ids_SL))[layer].float()
    return capture_layers(language_model, [layer], token_ids_SL)[layer].inputs_for(sparse_layer)
