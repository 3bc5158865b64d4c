"""Compute the table of steerability: python results/steerability_table.py"""

from __future__ import annotations

import json

import numpy as np
from scipy.stats import spearmanr
from tables import HARDWARE, RESAMPLES, RESULTS, Cell, write

SOURCE = "smollm2-135m/steerability.json"
LARGEST = 10
"""The last experts of each run have the largest predictions; the others are random."""


def main() -> None:
    """Write the table."""
    raw = json.loads((RESULTS / "raw" / SOURCE).read_text())
    rows = []
    for run, its in raw.items():
        pairs_E2 = np.array([its["predicted"], its["measured"]]).T
        random_E2, largest_E2 = pairs_E2[:-LARGEST], pairs_E2[-LARGEST:]
        ratios = [float(np.median(some[:, 1] / some[:, 0])) for some in (random_E2, largest_E2)]
        rows.append([run, len(random_E2), correlation(random_E2), *ratios, float(random_E2[:, 1].max())])
    facts = {
        "measured": "KL divergence on unrelated text of one unit of an expert, against its prediction",
        "model": "SmolLM2-135M-Instruct, the demo's runs",
        "tokens": "three passages of at most 64 tokens",
        "seeds": [0],
        "hardware": HARDWARE,
        "date": "2026-11-28",
        "command": f"python -m scripts.steerability {' '.join(raw)} > steerability.json",
        "source": f"computed by results/steerability_table.py from results/raw/{SOURCE}",
        "columns": [
            "run",
            "random experts",
            "rank correlation",
            "measured / predicted, median",
            "the same, ten largest",
            "largest measured, nats per token",
        ],
        "rows": rows,
    }
    write(RESULTS / "steerability" / "agreement.json", facts)


def correlation(pairs_E2: np.ndarray) -> Cell:
    """Rank correlation with its 95 % interval over experts."""
    draws = np.random.default_rng(0).integers(0, len(pairs_E2), (RESAMPLES, len(pairs_E2)))
    found = [float(spearmanr(*pairs_E2[draw].T).statistic) for draw in draws]
    value = float(spearmanr(*pairs_E2.T).statistic)
    return {"value": value, "interval": [float(each) for each in np.percentile(found, [2.5, 97.5])]}


if __name__ == "__main__":
    main()
