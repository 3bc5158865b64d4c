"""AUROC: how well a value tells positive examples from negative ones.

It is the probability that a positive example has the larger value; ties count half. 0.5 is chance.

Shapes: P positive and Q negative examples, F features.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mxd.trainer.utils.bootstrap import PERCENTILES, Floats, Interval

Values = npt.NDArray[np.floating] | npt.NDArray[np.integer]
RESAMPLES = 1000


def aurocs(positive_PF: Values, negative_QF: Values) -> Floats:
    """AUROC of each feature, [F]."""
    larger_F = np.zeros(positive_PF.shape[1])
    for value_F in positive_PF:
        larger_F += (value_F > negative_QF).mean(axis=0) + 0.5 * (value_F == negative_QF).mean(axis=0)
    return larger_F / len(positive_PF)


def auroc(positive_P: Values, negative_Q: Values) -> float:
    """AUROC of one value."""
    return float(aurocs(positive_P[:, None], negative_Q[:, None])[0])


def auroc_interval(positive_P: Values, negative_Q: Values, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """AUROC with a 95 % bootstrap interval; positive and negative examples are resampled separately."""
    wins_PQ = (positive_P[:, None] > negative_Q) + 0.5 * (positive_P[:, None] == negative_Q)
    generator = np.random.default_rng(seed)
    weights = [generator.multinomial(size, np.full(size, 1 / size), size=resamples) / size for size in wins_PQ.shape]
    low, high = np.percentile(np.einsum("bp,pq,bq->b", weights[0], wins_PQ, weights[1], optimize=True), PERCENTILES)
    return Interval(float(wins_PQ.mean()), float(low), float(high))
