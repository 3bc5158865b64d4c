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

GRIDS = {
    "smollm2-135m": "2026-11-27",
    "small-gpt2": "2026-11-26",
    "small-llama": "2026-11-27",
    "tiny-llama": "2026-11-27",
}
"""Folder of results/raw/ -> date of its measurements."""
TRANSCODER = "tc"
REPLACEMENTS = {
    "mxd": "MxD, centred (default)",
    "paper": "MxD, the paper's form and start",
    "uncentred": "MxD, not centred (the former default)",
    TRANSCODER: "transcoder",
    "skip": "skip transcoder",
    "hidden-paper": "hidden-side MxD, clt-training's form",
    "hidden": "hidden-side MxD, centred",
    "btk": "BatchTopK MxD",
    "molt": "MOLT",
}
"""Beginning of a run's name -> what it replaces the MLP with."""
COLUMNS = [
    "layer",
    "million tokens",
    "replacement",
    "seeds",
    "loss increase, nats",
    "against the transcoder",
    "loss / strict share",
    "routing share",
    "strict routing share",
    "decoder share",
    "normalised MSE",
    "dead, %",
    "stable rank",
]
MILLION = 2**20
MEASURES: tuple[Callable[[dict[str, Any]], Any], ...] = (
    lambda run: run.get("routing_share"),
    lambda run: run.get("strict_routing_share"),
    lambda run: run.get("decoder_share"),
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
            "tokens": held_out(raw["runs"][0]),
            "seeds": "of the weights, on one order of the text",
            "hardware": HARDWARE,
            "date": date,
            "source": f"computed by results/grid_tables.py from results/raw/{grid}/grid.json",
        }
        columns, rows = measured_columns(list(table(raw["runs"])))
        write(RESULTS / grid / "grid.json", {**facts, "columns": columns, "rows": rows})


def held_out(run: dict[str, Any]) -> str:
    """The text on which a run was evaluated."""
    return f"{run['tokens']:,} held-out tokens in {run['sequences']} sequences"


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
        yield [layer, tokens, REPLACEMENTS[kind], len(group), loss, difference, loss_per_share(group), *measures]


def measured_columns(rows: list[list[Cell]]) -> tuple[list[str], list[list[Cell]]]:
    """The columns that were measured in at least one row, and the rows with these."""
    kept = [number for number in range(len(COLUMNS)) if any(row[number] is not None for row in rows)]
    return [COLUMNS[number] for number in kept], [[row[number] for number in kept] for row in rows]


def mean_losses(runs: Runs) -> NDArray[np.float64]:
    """Loss increase of each sequence, the mean over seeds."""
    losses: NDArray[np.float64] = np.mean([run["loss_increase_by_sequence"] for run in runs], axis=0)
    return losses


def loss_per_share(runs: Runs) -> float | None:
    """Loss increase divided by the strict routing share, each the mean over seeds; null if that was not measured."""
    shares = [run.get("strict_routing_share") for run in runs]
    if None in shares:
        return None
    return float(np.mean([run["loss_increase"]["value"] for run in runs]) / np.mean(shares))


def across(values: list[Any]) -> Cell:
    """Smallest and largest value over seeds; null if it was not measured, and the value itself of one seed."""
    if None in values:
        return None
    return values[0] if len(values) == 1 else {"from": min(values), "to": max(values)}


if __name__ == "__main__":
    main()
