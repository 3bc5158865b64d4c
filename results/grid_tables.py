"""Compute the tables of a grid of layers, tokens, methods and seeds: python results/grid_tables.py

A row is the mean over seeds. Its intervals resample sequences, the same for all seeds and methods: they read the same
text. Differences from the transcoder are therefore paired.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tables import HARDWARE, RESULTS, Cell, with_interval, write

GRIDS = {"smollm2-135m": "2026-11-27", "small-gpt2": "2026-11-26", "small-llama": "2026-11-27"}
"""Folder of results/raw/ -> date of its measurements."""
TRANSCODER = "tc"
REPLACEMENTS = {
    "mxd": "MxD, centred (default)",
    "paper": "MxD, the paper's form and start",
    TRANSCODER: "transcoder",
}
"""Beginning of a run's name -> what it replaces the MLP with."""
COLUMNS = [
    "layer",
    "million tokens",
    "replacement",
    "seeds",
    "loss increase, nats",
    "against the transcoder",
    "routing share",
    "strict routing share",
    "normalised MSE",
    "dead, %",
    "stable rank",
]
MILLION = 2**20
MEASURES: tuple[Callable[[dict[str, Any]], Any], ...] = (
    lambda run: run.get("routing_share"),
    lambda run: run.get("strict_routing_share"),
    lambda run: run["normalized_mse"],
    lambda run: 100 * run["dead_share"],
    lambda run: (run["health"].get("expert_ranks") or {}).get("stable_rank"),
)
Runs = list[dict[str, Any]]
Groups = dict[tuple[int, float, str], Runs]


def main() -> None:
    """Write one table per grid."""
    for grid, date in GRIDS.items():
        raw = json.loads((RESULTS / "raw" / grid / "grid.json").read_text("utf-8"))
        facts = {
            "measured": "one layer in place of its MLP; values are means over seeds with intervals over sequences, "
            "or ranges over seeds; differences are paired",
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
    groups: Groups = defaultdict(list)
    for run in runs:
        groups[run["layer"], run["trained_tokens"] / MILLION, run["run"].split("-")[0]].append(run)
    for (layer, tokens, kind), group in sorted(groups.items()):
        losses = mean_losses(group)
        transcoders = [] if kind == TRANSCODER else groups.get((layer, tokens, TRANSCODER), [])
        difference = with_interval(np.mean, losses - mean_losses(transcoders)) if transcoders else None
        measures = (across([measure(run) for run in group]) for measure in MEASURES)
        loss = with_interval(np.mean, losses)
        yield [layer, tokens, REPLACEMENTS[kind], len(group), loss, difference, *measures]


def mean_losses(runs: Runs) -> NDArray[np.float64]:
    """Loss increase of each sequence, the mean over seeds."""
    losses: NDArray[np.float64] = np.mean([run["loss_increase_by_sequence"] for run in runs], axis=0)
    return losses


def across(values: list[Any]) -> Cell:
    """Smallest and largest value over seeds; null if it was not measured, and the value itself of one seed."""
    if None in values:
        return None
    return values[0] if len(values) == 1 else {"from": min(values), "to": max(values)}


if __name__ == "__main__":
    main()
