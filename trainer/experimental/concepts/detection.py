"""Detection of a concept: AUROC of experts, of directions and of a classifier of words.

An expert is chosen as the best of all on one half of the texts, so its AUROC is reported on the other half.

Shapes: P texts with the concept, Q texts without it, F features, B resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mxd.trainer.experimental.concepts.features import Floats
from mxd.trainer.utils.bootstrap import PERCENTILES, Interval


def aurocs(positive_PF: Floats, negative_QF: Floats) -> npt.NDArray[np.float64]:
    """AUROC of each feature, [F]: probability that a text with the concept has the larger value; ties count half."""
    larger_F = np.zeros(positive_PF.shape[1])
    for value_F in positive_PF:
        larger_F += (value_F > negative_QF).mean(axis=0) + 0.5 * (value_F == negative_QF).mean(axis=0)
    return larger_F / len(positive_PF)


def auroc(positive_P: Floats, negative_Q: Floats, resamples: int, seed: int) -> Interval:
    """AUROC with a 95 % bootstrap interval over texts."""
    wins_PQ = (positive_P[:, None] > negative_Q) + 0.5 * (positive_P[:, None] == negative_Q)
    generator = np.random.default_rng(seed)
    counts = [generator.multinomial(size, np.full(size, 1 / size), size=resamples) / size for size in wins_PQ.shape]
    low, high = np.percentile(np.einsum("bp,pq,bq->b", counts[0], wins_PQ, counts[1], optimize=True), PERCENTILES)
    return Interval(float(wins_PQ.mean()), float(low), float(high))


@dataclass(frozen=True)
class WordClassifier:
    """Logistic regression on the words of a text, trained once and then frozen."""

    pipeline: Any

    @classmethod
    def train(cls, positive: Sequence[str], negative: Sequence[str]) -> WordClassifier:
        """Train on texts with and without the concept. The result is the same in every run."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        words = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b|[^\w\s]")
        pipeline = make_pipeline(words, LogisticRegression(C=10.0, class_weight="balanced", max_iter=1000))
        pipeline.fit([*positive, *negative], [1] * len(positive) + [0] * len(negative))
        return cls(pipeline)

    def scores(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Probability that each text has the concept."""
        probabilities: npt.NDArray[np.float64] = self.pipeline.predict_proba(list(texts))[:, 1]
        return probabilities


def expert_of_equal_density(density_N: Floats, expert: int, generator: np.random.Generator) -> int:
    """Another expert, drawn from the 20 whose density is closest."""
    nearest_N = np.argsort(np.abs(density_N - density_N[expert]), kind="stable")
    return int(generator.choice(nearest_N[nearest_N != expert][:20]))
