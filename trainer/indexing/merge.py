"""What several processes have gathered, each on its share of the text, brought together on the first: exactly.

Counts add up, ranges widen to the widest, and of what each has kept of an expert the best of all is kept: what one
process would have gathered by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.distributed import Ranks
from trainer.indexing.gather import Gathered
from trainer.indexing.pairs import Pairs
from trainer.indexing.statistics import Statistics

_INTEGER, _REAL, _SINGLE = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.float32)
_EXPONENT, _WORD, _TOKEN = np.dtype(np.int32), np.dtype(np.uint64), np.dtype(np.uint32)
_STATISTICS = (_INTEGER, _REAL, _SINGLE, _INTEGER, _EXPONENT)
_PAIRS = tuple(field.dtype for field in Pairs.none())


def merge(gathered: Gathered, ranks: Ranks) -> None:
    """Make the first rank's ``gathered`` that of all ranks; the others send what they have."""
    if ranks.is_alone:
        return
    gathered.settle()
    if not ranks.is_first:
        _send(gathered, ranks)
        return
    kept = [_receive(gathered, ranks, source) for source in range(1, ranks.world)]
    gathered.contexts.merge(kept, gathered.statistics)


def _send(gathered: Gathered, ranks: Ranks) -> None:
    statistics = gathered.statistics
    ranks.send([np.array([gathered.tokens, gathered.measured_tokens])], 0)
    ranks.send([np.array([gathered.error_sum])], 0)
    ranks.send(
        [
            statistics.active_tokens,
            statistics.sums,
            statistics.largest,
            statistics.histogram_NB,
            statistics.exponents,
        ],
        0,
    )
    ranks.send(gathered.contexts.pairs, 0)
    numbers = sorted(gathered.sequences.token_ids)
    rows: list[NDArray[Any]] = [gathered.sequences.token_ids[number] for number in numbers]
    ranks.send([np.array(numbers, np.int64), np.concatenate(rows) if rows else np.zeros(0, np.uint32)], 0)
    ranks.send(gathered.sample.flat(), 0)
    for _, _, words in gathered.token_counts.chunks():
        if len(words):
            ranks.send([words], 0)
    ranks.send([np.zeros(0, np.uint64)], 0)


def _receive(gathered: Gathered, ranks: Ranks, source: int) -> Pairs:
    """Add what a rank sends; returns the pairs that it has kept."""
    (counted,) = ranks.receive([_INTEGER], source)
    (error_sum,) = ranks.receive([_REAL], source)
    gathered.tokens += int(counted[0])
    gathered.measured_tokens += int(counted[1])
    gathered.error_sum += float(error_sum[0])
    other = Statistics(len(gathered.statistics.active_tokens))
    other.active_tokens, other.sums, other.largest, histogram, other.exponents = ranks.receive(_STATISTICS, source)
    other.histogram_NB = histogram.reshape(other.histogram_NB.shape)
    gathered.statistics.merge(other)
    pairs = Pairs(*ranks.receive(_PAIRS, source))
    numbers, token_ids = ranks.receive([_INTEGER, _TOKEN], source)
    if len(numbers):
        gathered.sequences.add(token_ids.reshape(len(numbers), -1), numbers)
    gathered.sample.join(*ranks.receive([_INTEGER, _INTEGER, _INTEGER, _TOKEN], source))
    while len(words := ranks.receive([_WORD], source)[0]):
        gathered.token_counts.take(words)
    return pairs
