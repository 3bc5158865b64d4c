"""Compute the table of amplified experts by replacement: python results/amplification_tables.py"""

from __future__ import annotations

import csv
import gzip
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from grid_tables import REPLACEMENTS
from numpy.typing import NDArray
from tables import HARDWARE, RESULTS, Cell, with_interval, write

RAW = "amplified.csv.gz"
RUN = re.compile(r"(?P<kind>.+)-l(?P<layer>\d+)-s\d+-(?P<tokens>\d+)M")
MODELS = {"small-llama": "small Llama"}
"""Folder of results/raw/ -> name of the language model."""
BASELINES = {"random expert": "kl_random_expert", "random direction": "kl_random_direction"}
COLUMNS = [
    "model",
    "layer",
    "million tokens",
    "replacement",
    "runs",
    "experts",
    "median KL, nats",
    *(f"{what} {name}" for name in BASELINES for what in ("ratio to a", "% above a")),
    "outside its mean direction, %",
]
Rows = list[dict[str, str]]


def main() -> None:
    """Write the table."""
    facts = {
        "measured": "KL divergence of the next token when an expert is amplified by its 99th percentile, at its own "
        "examples; medians over experts with intervals over experts",
        "tokens": "131,072 indexed tokens",
        "seeds": "of the weights, pooled",
        "hardware": HARDWARE,
        "date": "2026-11-27",
        "source": f"computed by results/amplification_tables.py from results/raw/*/{RAW}",
        "columns": COLUMNS,
    }
    rows = [row for model in MODELS for row in table(model)]
    write(RESULTS / "steering" / "replacements.json", {**facts, "rows": rows})


def table(model: str) -> Iterable[list[Cell]]:
    """One row per layer and replacement of a language model."""
    with gzip.open(RESULTS / "raw" / model / RAW, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    groups: dict[tuple[int, int, str], Rows] = defaultdict(list)
    for row in rows:
        name = RUN.fullmatch(row["run"])
        assert name is not None
        groups[int(name["layer"]), int(name["tokens"]), name["kind"]].append(row)
    for (layer, tokens, kind), group in sorted(groups.items()):
        runs = len({row["run"] for row in group})
        yield [MODELS[model], layer, tokens, REPLACEMENTS[kind], runs, len(group), *measures(group)]


def measures(group: Rows) -> Iterable[Cell]:
    """The effect of an expert, and its ratio to each baseline."""
    amplified = column(group, "kl_amplified")
    yield with_interval(np.median, amplified)
    for name in BASELINES.values():
        pairs = np.stack([amplified, column(group, name)], axis=1)
        yield with_interval(ratio_of_medians, pairs)
        yield with_interval(np.mean, 100.0 * (pairs[:, 0] > pairs[:, 1]))
    yield with_interval(np.median, 100 * column(group, "input_dependence"))


def ratio_of_medians(pairs: NDArray[np.floating[Any]]) -> Any:
    """Median of the first column divided by that of the second."""
    return np.median(pairs[:, 0]) / np.median(pairs[:, 1])


def column(group: Rows, name: str) -> NDArray[np.float64]:
    """Values of a column."""
    return np.array([float(row[name]) for row in group])


if __name__ == "__main__":
    main()
