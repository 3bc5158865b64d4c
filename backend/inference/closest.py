"""The experts most similar to one, and what is usual among all others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Closest(NamedTuple):
    """Experts most similar to one."""

    experts: list[tuple[int, float]]
    """(expert, similarity), most similar first."""
    p95: float | None
    """95th percentile of the similarity over all other experts, for comparison; None if it would say nothing."""


def closest(similarity_N: NDArray[np.floating[Any]], expert: int, count: int) -> Closest:
    """Return the ``count`` experts most similar to ``expert``, of which the similarities to all N experts are given."""
    order_N = np.argsort(-similarity_N, kind="stable")
    others = order_N[order_N != expert]
    if not len(others):
        return Closest([], None)
    similarity = similarity_N[others].clip(-1, 1)
    pairs = zip(others[:count].tolist(), similarity[:count].tolist(), strict=True)
    return Closest(list(pairs), float(np.percentile(similarity, 95)))
