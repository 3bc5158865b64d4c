"""How well an expert's activation tells two sets of texts apart: AUROC with an interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000


def peak_activations(routing: Mapping[str, Any]) -> dict[int, float]:
    """Return the largest activation of each active expert on a routed text, without the start token."""
    peaks: dict[int, float] = {}
    for token in routing["tokens"]:
        for routed in () if token["start"] else token["experts"]:
            peaks[routed["expert"]] = max(peaks.get(routed["expert"], 0.0), routed["coefficient"])
    return peaks


def auroc(positive_P: NDArray[np.floating], negative_N: NDArray[np.floating]) -> float:
    """Return the probability that a positive text has the larger value; ties count half."""
    return float(_wins(positive_P, negative_N).mean())


def auroc_interval(
    positive_P: NDArray[np.floating], negative_N: NDArray[np.floating], seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the AUROC; positive and negative texts are resampled separately."""
    generator, wins_PN = np.random.default_rng(seed), _wins(positive_P, negative_N)
    count_p, count_n = wins_PN.shape
    means = [
        wins_PN[generator.integers(count_p, size=count_p)][:, generator.integers(count_n, size=count_n)].mean()
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _wins(positive_P: NDArray[np.floating], negative_N: NDArray[np.floating]) -> NDArray[np.float64]:
    difference_PN = np.subtract.outer(positive_P, negative_N)
    wins_PN: NDArray[np.float64] = (np.sign(difference_PN) + 1) / 2
    return wins_PN
