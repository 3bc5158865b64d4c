"""Detection of a concept by a classifier of words, and experts to compare with. Shape: N experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mxd.trainer.experimental.concepts.features import Floats


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
