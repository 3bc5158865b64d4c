"""Compute the table of eight replacements of one MLP: python results/neighbour_tables.py"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from grid_tables import MEASURES, across, mean_losses
from tables import HARDWARE, RESULTS, Cell, measured, with_interval, write

RAW = "raw/smollm2-135m/neighbours.json"
REPLACEMENTS = {
    "mxd": "MxD, centred (default)",
    "paper": "MxD, the paper's form and start",
    "hidden-paper": "hidden-side MxD, clt-training's form",
    "hidden": "hidden-side MxD, centred",
    "btk": "BatchTopK MxD",
    "molt": "MOLT",
    "tc": "transcoder",
    "skip": "skip transcoder",
}
"""Beginning of a run's name -> what it replaces the MLP with."""
REFERENCE = "tc"
JACOBIANS = {
    "Jacobian, random directions": "random",
    "control": "random_control",
    "Jacobian, data directions": "data",
    "control, data": "data_control",
}
"""Column -> kind of direction."""
COLUMNS = ["replacement", "N", "seeds", "loss increase, nats", "against the transcoder", "routing share"]
Run = dict[str, Any]


def main() -> None:
    """Write both tables."""
    groups = read_groups()
    facts = {
        "measured": "one layer in place of the MLP of layer 10; values are means over seeds with intervals over "
        "sequences, or ranges over seeds; differences are paired",
        "tokens": "1,048,576 training tokens; 8,192 held-out tokens in 64 sequences",
        "seeds": "of the weights, on one order of the text",
        "hardware": HARDWARE,
        "date": "2026-11-27",
        "source": f"computed by results/neighbour_tables.py from results/{RAW}",
    }
    folder = RESULTS / "hidden-side"
    columns = [*COLUMNS, "normalised MSE", "dead, %", "stable rank"]
    write(folder / "methods.json", {**facts, "columns": columns, "rows": list(methods(groups))})
    agreement = {"tokens": "256 held-out tokens, 8 directions of each kind per token", "seeds": 1}
    columns = ["replacement", *JACOBIANS]
    write(folder / "jacobians.json", {**facts, **agreement, "columns": columns, "rows": list(jacobians(groups))})


def read_groups() -> dict[str, list[Run]]:
    """The evaluated runs of each replacement, by seed."""
    runs = json.loads((RESULTS / RAW).read_text("utf-8"))["runs"]
    return {kind: [run for run in runs if run["run"].startswith(f"{kind}-l")] for kind in REPLACEMENTS}


def methods(groups: dict[str, list[Run]]) -> Iterable[list[Cell]]:
    """One row per replacement."""
    references = groups[REFERENCE]
    for kind, runs in groups.items():
        seeds = {run["seed"] for run in runs}
        losses = mean_losses(runs)
        paired = mean_losses([run for run in references if run["seed"] in seeds])
        difference = None if kind == REFERENCE else with_interval(np.mean, losses - paired)
        share, _, *others = (across([measure(run) for run in runs]) for measure in MEASURES)
        cells = (runs[0]["num_experts"], len(runs), with_interval(np.mean, losses), difference, share)
        yield [REPLACEMENTS[kind], *cells, *others]


def jacobians(groups: dict[str, list[Run]]) -> Iterable[list[Cell]]:
    """One row per replacement: mean cosine with the MLP's Jacobian-vector products, and its control."""
    for kind, runs in groups.items():
        (agreement,) = [run["jacobian"] for run in runs if run["jacobian"] is not None]
        yield [REPLACEMENTS[kind], *(measured(agreement[name]) for name in JACOBIANS.values())]


if __name__ == "__main__":
    main()
