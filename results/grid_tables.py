"""Compute the tables of a grid of layers, tokens and seeds: python results/grid_tables.py

A row is the mean over seeds. Its interval resamples sequences, the same for all seeds: they read the same text.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tables import HARDWARE, RESULTS, Cell, write

GRIDS = {"small-llama": "2026-11-27"}
"""Folder of results/raw/ -> date of its measurements."""
REPLACEMENTS = {"mxd": "MxD, centred (default)", "paper": "MxD, the paper's form and start", "tc": "transcoder"}
"""Beginning of a run's name -> what it replaces the MLP with."""
COLUMNS = [
    "layer",
    "million tokens",
    "replacement",
    "seeds",
    "loss increase, nats",
    "routing share",
    "strict routing share",
    "normalised MSE",
    "dead, %",
    "stable rank",
]
RESAMPLES = 2000
MILLION = 2**20
Runs = list[dict[str, Any]]


def main() -> None:
    """Write one table per grid."""
    for grid, date in GRIDS.items():
        raw = json.loads((RESULTS / "raw" / grid / "grid.json").read_text("utf-8"))
        facts = {
            "measured": "one layer in place of its MLP; values are means over seeds with intervals over sequences, "
            "or ranges over seeds",
            "tokens": "8,192 held-out tokens in 64 sequences",
            "seeds": "of the weights, on one order of the text",
            "hardware": HARDWARE,
            "date": date,
            "source": f"computed by results/grid_tables.py from results/raw/{grid}/grid.json",
            "columns": COLUMNS,
        }
        write(RESULTS / grid / "grid.json", {**facts, "rows": list(table(raw["runs"]))})


def table(runs: Runs) -> Iterable[list[Cell]]:
    """One row per layer, number of tokens and replacement."""
    groups: dict[tuple[int, float, str], Runs] = defaultdict(list)
    for run in runs:
        groups[run["layer"], run["trained_tokens"] / MILLION, run["run"].split("-")[0]].append(run)
    for (layer, tokens, kind), group in sorted(groups.items()):
        losses = np.array([run["loss_increase_by_sequence"] for run in group])
        measures = [across(group, lambda run: run.get("routing_share"))]
        measures += [across(group, lambda run: run.get("strict_routing_share"))]
        measures += [across(group, lambda run: run["normalized_mse"])]
        measures += [across(group, lambda run: 100 * run["dead_share"])]
        measures += [across(group, lambda run: (run["health"]["expert_ranks"] or {}).get("stable_rank"))]
        yield [layer, tokens, REPLACEMENTS[kind], len(group), mean(losses), *measures]


def mean(losses: NDArray[np.float64]) -> Cell:
    """Mean over seeds and sequences. Shape of the argument: seeds, sequences."""
    by_sequence = losses.mean(axis=0)
    picks = np.random.default_rng(0).integers(0, len(by_sequence), (RESAMPLES, len(by_sequence)))
    low, high = np.quantile(by_sequence[picks].mean(axis=1), [0.025, 0.975])
    return {"value": float(by_sequence.mean()), "interval": [float(low), float(high)]}


def across(runs: Runs, measure: Any) -> Cell:
    """Smallest and largest value over seeds; null if it was not measured, and the value itself of one seed."""
    values = [measure(run) for run in runs]
    if None in values:
        return None
    return values[0] if len(values) == 1 else {"from": min(values), "to": max(values)}


if __name__ == "__main__":
    main()
