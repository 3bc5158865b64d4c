"""Compute the tables of eight ways to replace an MLP: python results/neighbour_tables.py"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from grid_tables import COLUMNS as GRID_COLUMNS
from grid_tables import MEASURES, REPLACEMENTS, TRANSCODER, across, loss_per_share, mean_losses
from tables import HARDWARE, RESULTS, Cell, measured, with_interval, write

MODELS = {"smollm2-135m": "SmolLM2-135M", "small-llama": "small Llama"}
"""Folder of results/raw/ -> name of the language model."""
RAW = "neighbours.json"
JACOBIANS = {
    "random directions": "random",
    "control": "random_control",
    "data directions": "data",
    "control, data": "data_control",
}
"""Column -> kind of direction."""
COLUMNS = ["model, layer", "replacement", "N", "seeds", *GRID_COLUMNS[GRID_COLUMNS.index("seeds") + 1 :]]
Runs = list[dict[str, Any]]
Groups = dict[str, Runs]


def main() -> None:
    """Write both tables."""
    facts = {
        "measured": "one layer in place of its MLP; values are means over seeds with intervals over sequences, or "
        "ranges over seeds; differences are paired",
        "tokens": "1,048,576 training tokens; 8,192 held-out tokens in 64 sequences",
        "seeds": "of the weights, on one order of the text",
        "hardware": HARDWARE,
        "date": "2026-11-27",
        "source": f"computed by results/neighbour_tables.py from results/raw/*/{RAW}",
    }
    folder = RESULTS / "hidden-side"
    rows = [row for place, groups in places() for row in methods(place, groups)]
    write(folder / "methods.json", {**facts, "columns": COLUMNS, "rows": rows})
    agreement = {
        "measured": "mean cosine of the Jacobian-vector products of a layer and the MLP, with intervals over sequences",
        "tokens": "256 held-out tokens, 8 directions of each kind per token",
        "seeds": 1,
    }
    rows = [row for _, groups in places() for row in jacobians(groups)]
    write(folder / "jacobians.json", {**facts, **agreement, "columns": ["replacement", *JACOBIANS], "rows": rows})


def places() -> Iterator[tuple[str, Groups]]:
    """Each language model and layer, with its runs by replacement."""
    for folder, model in MODELS.items():
        runs = json.loads((RESULTS / "raw" / folder / RAW).read_text("utf-8"))["runs"]
        for layer in sorted({run["layer"] for run in runs}):
            names = {kind: f"{kind}-l{layer}-" for kind in REPLACEMENTS}
            groups = {kind: [run for run in runs if run["run"].startswith(name)] for kind, name in names.items()}
            yield f"{model}, {layer}", {kind: group for kind, group in groups.items() if group}


def methods(place: str, groups: Groups) -> Iterable[list[Cell]]:
    """One row per replacement."""
    for kind, runs in groups.items():
        seeds = {run["seed"] for run in runs}
        losses = mean_losses(runs)
        paired = mean_losses([run for run in groups[TRANSCODER] if run["seed"] in seeds])
        difference = None if kind == TRANSCODER else with_interval(np.mean, losses - paired)
        loss = with_interval(np.mean, losses)
        measures = (across([measure(run) for run in runs]) for measure in MEASURES)
        cells = (runs[0]["num_experts"], len(runs), loss, difference, loss_per_share(runs))
        yield [place, REPLACEMENTS[kind], *cells, *measures]


def jacobians(groups: Groups) -> Iterable[list[Cell]]:
    """One row per replacement with a measured agreement."""
    for kind, runs in groups.items():
        for agreement in (run["jacobian"] for run in runs if run["jacobian"] is not None):
            yield [REPLACEMENTS[kind], *(measured(agreement[name]) for name in JACOBIANS.values())]


if __name__ == "__main__":
    main()
