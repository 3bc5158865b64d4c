"""Merge the data that several processes collected on their shares of the text into the main process's builder.

The result equals that of a single process: counts are summed, histogram ranges are widened, and each expert's examples
are selected again among those of all processes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxd.trainer.analysis.indexing.activations import ActivePairs
from mxd.trainer.analysis.indexing.collect import IndexBuilder
from mxd.trainer.analysis.indexing.statistics import ExpertStatistics
from mxd.trainer.utils.distributed import ProcessGroup

_INTEGER, _REAL, _SINGLE = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.float32)
_EXPONENT, _WORD, _TOKEN = np.dtype(np.int32), np.dtype(np.uint64), np.dtype(np.uint32)
_STATISTICS = (_INTEGER, _REAL, _SINGLE, _INTEGER, _EXPONENT, _EXPONENT, _SINGLE, _SINGLE)
_PAIRS = tuple(field.dtype for field in ActivePairs.empty())


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
    group.send([np.array([builder.tokens, builder.measured_tokens])], 0)
    group.send([np.array([builder.error_sum])], 0)
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
    numbers = sorted(builder.sequences.token_ids)
    rows: list[NDArray[Any]] = [builder.sequences.token_ids[number] for number in numbers]
    group.send([np.array(numbers, np.int64), np.concatenate(rows) if rows else np.zeros(0, np.uint32)], 0)
    group.send(builder.sample.to_arrays(), 0)
    for _, _, words in builder.token_counts.chunks():
        if len(words):
            group.send([words], 0)
    group.send([np.zeros(0, np.uint64)], 0)


def _receive(builder: IndexBuilder, group: ProcessGroup, source: int) -> ActivePairs:
    """Merge another process's data, except for its active pairs, which are returned."""
    (counted,) = group.receive([_INTEGER], source)
    (error_sum,) = group.receive([_REAL], source)
    builder.tokens += int(counted[0])
    builder.measured_tokens += int(counted[1])
    builder.error_sum += float(error_sum[0])
    other = ExpertStatistics(len(builder.statistics.active_tokens))
    other.active_tokens, other.sums, other.largest, histogram, other.exponents, *tails = group.receive(
        _STATISTICS, source
    )
    other.tails.expert, other.tails.value, other.tails.dropped = tails
    other.histogram_NB = histogram.reshape(other.histogram_NB.shape)
    builder.statistics.merge(other)
    pairs = ActivePairs(*group.receive(_PAIRS, source))
    numbers, token_ids = group.receive([_INTEGER, _TOKEN], source)
    if len(numbers):
        builder.sequences.add(token_ids.reshape(len(numbers), -1), numbers)
    builder.sample.merge_arrays(*group.receive([_INTEGER, _INTEGER, _INTEGER, _TOKEN], source))
    while len(words := group.receive([_WORD], source)[0]):
        builder.token_counts.add_run(words)
    return pairs
