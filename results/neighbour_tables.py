"""Compute the tables of ways to replace an MLP: python results/neighbour_tables.py"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
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
STARTS = {
    "mxd": "MxD (default)",
    TRANSCODER: "transcoder",
    "stc": "skip transcoder",
    "h0": "hidden-side MxD from examples",
    "h1": "the same, penalty 1",
    "h3": "the same, penalty 3",
    "h10": "the same, penalty 10",
    "h15": "the same, penalty 15",
    "h20": "the same, penalty 20",
    "h30": "the same, penalty 30",
    "hp": "the same with a linear path (paper's mixing)",
}
"""Beginning of a run's name -> replacement, in the comparison of a start at examples."""
LONGER = {kind: STARTS[kind] for kind in ("mxd", TRANSCODER, "stc")} | {
    f"h{weight}": f"hidden-side MxD from examples, penalty {weight}" for weight in (3, 15)
}
RAW_STARTS = "hidden-start.json"
RAW_LONG = "hidden-start-10m.json"
COLUMNS = ["model, layer", "replacement", "N", "seeds", *GRID_COLUMNS[GRID_COLUMNS.index("seeds") + 1 :]]
Runs = list[dict[str, Any]]
Groups = dict[str, Runs]


def main() -> None:
    """Write the tables."""
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
    rows = [row for place, groups in places(RAW, REPLACEMENTS) for row in methods(place, groups, REPLACEMENTS)]
    write(folder / "methods.json", {**facts, "columns": COLUMNS, "rows": rows})
    rows = [row for place, groups in places(RAW_STARTS, STARTS) for row in methods(place, groups, STARTS)]
    later = {
        "tokens": "524,288 training tokens for SmolLM2, 1,048,576 for the small Llama; 8,192 held-out tokens",
        "date": "2026-11-29",
        "source": f"computed by results/neighbour_tables.py from results/raw/*/{RAW_STARTS}",
    }
    write(folder / "starts.json", {**facts, **later, "columns": COLUMNS, "rows": rows})
    rows = [row for place, groups in places(RAW_LONG, LONGER) for row in methods(place, groups, LONGER)]
    longer = {
        "tokens": "10,485,760 training tokens; 8,192 held-out tokens",
        "source": f"computed by results/neighbour_tables.py from results/raw/*/{RAW_LONG}",
    }
    write(folder / "longer.json", {**facts, **later, **longer, "columns": COLUMNS, "rows": rows})
    agreement = {
        "measured": "mean cosine of the Jacobian-vector products of a layer and the MLP, with intervals over sequences",
        "tokens": "256 held-out tokens, 8 directions of each kind per token",
        "seeds": 1,
    }
    rows = [row for _, groups in places(RAW, REPLACEMENTS) for row in jacobians(groups)]
    write(folder / "jacobians.json", {**facts, **agreement, "columns": ["replacement", *JACOBIANS], "rows": rows})


def places(raw: str, replacements: Mapping[str, str]) -> Iterator[tuple[str, Groups]]:
    """Each language model and layer, with its runs by replacement."""
    for path, model in ((RESULTS / "raw" / folder / raw, model) for folder, model in MODELS.items()):
        if not path.exists():  # too long for this language model
            continue
        runs = json.loads(path.read_text("utf-8"))["runs"]
        for layer in sorted({run["layer"] for run in runs}):
            names = {kind: f"{kind}-l{layer}-" for kind in replacements}
            groups = {kind: [run for run in runs if run["run"].startswith(name)] for kind, name in names.items()}
            yield f"{model}, {layer}", {kind: group for kind, group in groups.items() if group}


def methods(place: str, groups: Groups, replacements: Mapping[str, str]) -> Iterable[list[Cell]]:
    """One row per replacement."""
    for kind, runs in groups.items():
        seeds = {run["seed"] for run in runs}
        losses = mean_losses(runs)
        paired = mean_losses([run for run in groups[TRANSCODER] if run["seed"] in seeds])
        difference = None if kind == TRANSCODER else with_interval(np.mean, losses - paired)
        loss = with_interval(np.mean, losses)
        measures = (across([measure(run) for run in runs]) for measure in MEASURES)
        cells = (runs[0]["num_experts"], len(runs), loss, difference, loss_per_share(runs))
        yield [place, replacements[kind], *cells, *measures]


def jacobians(groups: Groups) -> Iterable[list[Cell]]:
    """One row per replacement with a measured agreement."""
    for kind, runs in groups.items():
        for agreement in (run["jacobian"] for run in runs if run["jacobian"] is not None):
            yield [REPLACEMENTS[kind], *(measured(agreement[name]) for name in JACOBIANS.values())]


if __name__ == "__main__":
    main()
