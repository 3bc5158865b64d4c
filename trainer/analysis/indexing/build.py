"""Building of an index: one pass over a text, in one or several processes, written in one transaction.

Until the transaction commits, readers see the run's previous index. Memory is bounded, whatever the size of the text.

On a GPU, the language model and the gate run in a separate thread, ahead of the counting. On a CPU they alternate,
because the matrix products already use all cores.

Several processes read shares of the text, and the main process merges their data. The result equals that of a single
process: counts are summed, histogram ranges are widened, and each expert's examples are selected again among those of
all processes.

Shapes: S sequences of a batch, L tokens of a sequence, T = S * L tokens, I input width, K active.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, groupby, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sqlalchemy import Engine, Insert, LargeBinary, and_, bindparam, insert, select, type_coerce
from sqlalchemy.orm import Session
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mxd.trainer.analysis.effect_search import activation_prices, prices_of_units
from mxd.trainer.analysis.indexing.examples import RoutedSample, SelectedExamples, TopExamples
from mxd.trainer.analysis.indexing.statistics import (
    ACTIVATION_BINS,
    HISTOGRAM_BINS,
    ActivePairs,
    ExpertStatistics,
    Ints,
    TokenCounts,
    active_pairs,
)
from mxd.trainer.config.analysis import IndexConfig
from mxd.trainer.data.activation_cache import ActivationCache
from mxd.trainer.data.activations import capture_layers
from mxd.trainer.data.sequences import check_text_length, sequence_batches
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.tokenizer import decode_all
from mxd.trainer.layers.mxd import Routing, SparseLayer, normalized_mse
from mxd.trainer.storage.database.column_types import ACTIVE, TOKEN_IDS, pack_active, pack_routed, unpack_token_ids
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import delete_index, writing
from mxd.trainer.storage.database.search import SEARCH_MARGIN, insert_search, make_search_table, search_body
from mxd.trainer.storage.database.tables import ExampleRecord, IndexRecord, RoutedRecord, SequenceRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record, register_run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.display import labelled_values
from mxd.trainer.utils.distributed import SINGLE_PROCESS, ProcessGroup, prefetch
from mxd.trainer.utils.files import exclusive_lock

TOKENS_PER_BATCH = 8192
MAX_SCORES = 1 << 26
"""Gate scores computed together. Bounds the gate's memory for any number of experts."""
MEASURE_INTERVAL = 8
"""The layer's error is measured on every n-th batch only. Routing needs neither the decoder nor the original MLP."""
_BATCHES_AHEAD = 2
SUMMED = ("tokens", "measured_tokens", "error_sum")
"""Numbers of an ``IndexBuilder`` that are summed over the processes."""


class Batch(NamedTuple):
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
        self.token_ids: dict[int, NDArray[np.uint32]] = {}
        """Token ids of the sequences with selected examples."""
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
        # Copies, because a view would keep its whole batch in memory.
        rows = map(np.copy, batch.token_ids_SL.astype(np.uint32))
        self.token_ids.update(zip(batch.sequence_ids_S.tolist(), rows, strict=True))
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
        kept = set(np.unique(self.examples.pairs.sequence).tolist())
        self.token_ids = {number: ids for number, ids in self.token_ids.items() if number in kept}
        return selected

    @property
    def normalized_mse(self) -> float:
        """Normalised MSE of the layer over the measured batches, rounded to float32 like ``ExpertStatistics.means``."""
        return float(np.float32(self.error_sum / max(self.measured_tokens, 1)))


def merge(builder: IndexBuilder, group: ProcessGroup) -> None:
    """Send every process's data to the main process and merge it into the main process's ``builder``."""
    if group.is_single:
        return
    builder.prune()
    if not group.is_main:
        group.send([getattr(builder, name) for name in SUMMED], 0)
        group.send([builder.statistics, builder.examples.pairs, builder.token_ids, builder.sample], 0)
        group.send((words for _, _, words in builder.token_counts.chunks() if len(words)), 0)
        group.send([None], 0)
        return
    parts = list[ActivePairs]()
    for source in range(1, group.world_size):
        for name, value in zip(SUMMED, group.receive(len(SUMMED), source), strict=True):
            setattr(builder, name, getattr(builder, name) + value)
        statistics, pairs, token_ids, sample = group.receive(4, source)
        builder.statistics.merge(statistics)
        parts.append(pairs)
        builder.token_ids.update(token_ids)
        builder.sample.merge(sample)
        while (words := group.receive(1, source)[0]) is not None:
            builder.token_counts.add_run(words)
    builder.examples.merge(parts, builder.statistics)


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
            active, done = int((builder.statistics.active_tokens > 0).sum()), builder.tokens * group.world_size
            callbacks.on_progress(min(done, config.tokens), config.tokens, f"{active:,} experts active")


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


ROWS_PER_INSERT = 5_000
EXPERTS_PER_INSERT = 200
DECODED_SEQUENCES = 1 << 16
EXAMPLE_COLUMNS = SelectedExamples._fields[:-2]


def write_index(
    database: Engine,
    run_name: str,
    config: IndexConfig,
    builder: IndexBuilder,
    tokenizer: PreTrainedTokenizerBase,
    price_N: Tensor | None = None,
) -> int:
    """Write an index, and return the number of stored examples. Until the transaction commits, readers see the previous
    one. ``price_N`` are the run's ``activation_prices``, if there are any. Raises NotFoundError if the run is not in
    the database."""
    with writing(database) as session:
        run = find_record(session, run_name)
        delete_index(session, run.id)
        selected = builder.prune()
        _insert(session, insert(ExpertRecord), _experts(run.id, config, builder, price_N))
        token_ids = sorted((builder.token_ids | builder.sample.token_ids).items())
        sequences = ((number, ids_L.astype(TOKEN_IDS).tobytes()) for number, ids_L in token_ids)
        _insert(session, insert(SequenceRecord), _rows(run.id, ("sequence", "token_ids"), sequences))
        sample, columns = builder.sample, ("sequence", "counts", "experts")
        routed = ((it, *pack_routed(*sample.routed[it], run.num_experts)) for it in sample.sequences)
        _insert(session, insert(RoutedRecord), _rows(run.id, columns, routed))
        # Encoded together, because one by one takes as long as the inserts.
        packed = insert(ExampleRecord).values(active=bindparam("packed", type_=LargeBinary))
        _insert(session, packed, _examples(run.id, selected, builder.examples.pairs))
        index_search(session, run.id, tokenizer)
        session.add(
            IndexRecord(
                run_id=run.id,
                text=config.text.dataset,
                seed=config.seed,
                tokens=builder.tokens,
                context_length=config.text.context_length,
                active_experts=int((builder.statistics.active_tokens > 0).sum()),
                examples=len(selected.expert),
                normalized_mse=builder.normalized_mse,
                created_at=utc_now(),
            )
        )
    return len(selected.expert)


def _rows(run_id: int, columns: Sequence[str], values: Iterable[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    return ({"run_id": run_id, **dict(zip(columns, row, strict=True))} for row in values)


def _insert(session: Session, statement: Insert, rows: Iterator[dict[str, Any]]) -> None:
    connection = session.connection()  # faster than the session's bulk insert
    while chunk := list(islice(rows, ROWS_PER_INSERT)):
        connection.execute(statement, chunk)


def _experts(
    run_id: int, config: IndexConfig, builder: IndexBuilder, price_N: Tensor | None
) -> Iterator[dict[str, Any]]:
    statistics, p99_N = builder.statistics, builder.statistics.percentiles(0.99)
    prices = [None] * len(p99_N) if price_N is None else prices_of_units(price_N, torch.from_numpy(p99_N)).tolist()
    columns_N = (statistics.active_tokens, statistics.largest, statistics.highs, statistics.means, p99_N)
    active, largest, range_ends, means, p99 = (values_N.tolist() for values_N in columns_N)
    for expert, (top_tokens, entropy) in enumerate(builder.token_counts.summaries(config.top_tokens)):
        histogram_B, high = statistics.histogram_NB[expert], range_ends[expert]
        counts = histogram_B.reshape(ACTIVATION_BINS, HISTOGRAM_BINS // ACTIVATION_BINS).sum(axis=1)
        filled = int(np.flatnonzero(counts).max(initial=-1)) + 1
        edges = [number * high / ACTIVATION_BINS for number in range(filled + 1)]
        yield {
            "run_id": run_id,
            "expert": expert,
            "active_tokens": active[expert],
            "density": active[expert] / builder.tokens,
            "mean_activation": means[expert],
            "max_activation": largest[expert],
            "p99": p99[expert],
            "entropy": entropy,
            "top_tokens": top_tokens,
            "histogram": histogram_B.tolist(),
            "histogram_high": high,
            # [low, high, active tokens], from the highest non-empty bin down.
            "bins": [[edges[bin], edges[bin + 1], int(counts[bin])] for bin in reversed(range(filled))],
            "steerability": prices[expert],
        }


def _examples(run_id: int, selected: SelectedExamples, pairs: ActivePairs) -> Iterator[dict[str, Any]]:
    active_P = np.zeros(len(pairs.expert), ACTIVE)
    active_P["position"], active_P["activation"], active_P["rank"] = pairs.position, pairs.activation, pairs.rank
    for start in range(0, len(selected.expert), ROWS_PER_INSERT):
        # In chunks, because Python objects take many times the memory of arrays.
        chunk = SelectedExamples._make(field[start : start + ROWS_PER_INSERT] for field in selected)
        packed = pack_active(active_P, chunk.start, chunk.end)
        columns = (field.tolist() for field in chunk[: len(EXAMPLE_COLUMNS)])
        yield from _rows(run_id, (*EXAMPLE_COLUMNS, "packed"), zip(*columns, packed, strict=True))


def index_search(session: Session, run_id: int, tokenizer: PreTrainedTokenizerBase) -> None:
    """Add one search document per expert with examples, in the caller's transaction. The run must have none yet."""
    make_search_table(session, run_id)
    same_sequence = and_(
        SequenceRecord.run_id == ExampleRecord.run_id, SequenceRecord.sequence == ExampleRecord.sequence
    )
    query = (
        select(ExampleRecord.expert, ExampleRecord.position, type_coerce(SequenceRecord.token_ids, LargeBinary))
        .join(SequenceRecord, same_sequence)
        .where(ExampleRecord.run_id == run_id, ExampleRecord.bin == 0)
        .order_by(ExampleRecord.expert, ExampleRecord.rank)
    )
    # The token ids around the peak of each top example.
    windows = (
        (expert, _unpack(packed)[max(0, position - SEARCH_MARGIN) : position + SEARCH_MARGIN + 1].tolist())
        for expert, position, packed in session.execute(query)
    )
    by_expert = groupby(windows, key=lambda window: window[0])
    experts = ((expert, [ids for _, ids in own]) for expert, own in by_expert)

    def documents(some: Sequence[tuple[int, list[list[int]]]]) -> list[tuple[int, str]]:
        # One call decodes all windows, which the tokenizer spreads over the cores.
        texts = iter(decode_all(tokenizer, [ids for _, windows in some for ids in windows]))
        return [(expert, search_body(islice(texts, len(windows)))) for expert, windows in some]

    with ThreadPoolExecutor(1) as pool:  # decodes while the next windows are read
        decoding: Future[list[tuple[int, str]]] | None = None
        while some := list(islice(experts, EXPERTS_PER_INSERT)):
            following = pool.submit(documents, some)
            insert_search(session, run_id, decoding.result() if decoding else ())
            decoding = following
        insert_search(session, run_id, decoding.result() if decoding else ())


_unpack = lru_cache(DECODED_SEQUENCES)(unpack_token_ids)
"""Token ids of a sequence. Experts and runs of one text share sequences, and unpacking is slow."""


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
        counts = {"tokens": self.tokens, "examples": self.examples, "active experts": self.active_experts}
        values = ((name, f"{count:,}") for name, count in counts.items())
        return labelled_values([("indexed", self.run), *values, ("normalised MSE", f"{self.normalized_mse:.4f}")])


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
    builder = IndexBuilder(run, config, language_model)
    with closing(builder.token_counts), ExitStack() as locks:
        if group.is_main:
            locks.enter_context(exclusive_lock(run.folder / LOCK_FILE, f"The run {run.name} is being indexed"))
            register_run(run, database)
        collect(builder, run, config, language_model, group, callbacks, cache)
        merge(builder, group)

        def write() -> int:
            callbacks.on_progress(builder.tokens, builder.tokens, "computing steerability")
            price_N = _prices(run, language_model)
            callbacks.on_progress(builder.tokens, builder.tokens, "writing to the database")
            count = write_index(database, run.name, config, builder, run.tokenizer, price_N)
            p99, active = builder.statistics.percentiles(0.99), np.flatnonzero(builder.statistics.active_tokens > 0)
            run.write_units({int(expert): float(p99[expert]) for expert in active})
            run.write_prices(None if price_N is None else price_N.tolist())
            return count

        examples = group.take_turn(write) or 0
        return IndexResult(
            run=run.name,
            tokens=builder.tokens,
            examples=examples,
            active_experts=int((builder.statistics.active_tokens > 0).sum()),
            normalized_mse=builder.normalized_mse,
        )


def _prices(run: Run, language_model: LanguageModel) -> Tensor | None:
    """Prices of the experts; None where they cannot be computed."""
    if language_model.sharding is not None:
        return None  # its forward passes need all processes, and this one is alone here
    trainable = [parameter for parameter in run.layer.parameters() if parameter.requires_grad]
    try:
        return activation_prices(language_model, [run])[run.config.layer]
    except UserError:  # several residual streams: no gradient of the next token
        return None
    finally:
        for parameter in trainable:
            parameter.requires_grad_()  # the caller may train the layer further
