"""Compute the tables of the learning curve and of equal parameters: python results/curve_tables.py"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from grid_tables import MILLION, mean_losses
from tables import HARDWARE, RESULTS, Cell, measured, with_interval, write

RAW = "raw/smollm2-135m"
TRANSCODER = "transcoder"
CURVE = {
    "mxd": "MxD, centred (default)",
    "paper": "MxD, the paper's form and start",
    TRANSCODER: TRANSCODER,
    "skip-transcoder": "skip transcoder",
    "batch-topk-mxd": "BatchTopK MxD",
    "molt": "MOLT",
}
"""Kind of layer -> its name on the page, in the order of the rows."""
OTHER_SETTINGS = re.compile(r"^(d-lr|l10-b2048)")
"""Runs of the learning curve's raw data that belong to the table of learning rates."""
RANDOM_START = "smollm2-l22-random"
QUANTISED = "smollm2-l22"
SEEDS = (QUANTISED, "smollm2-l22-seed1", "smollm2-l22-seed2")
Run = dict[str, Any]


def main() -> None:
    """Write both tables."""
    facts = {"tokens": "8,192 held-out tokens in 64 sequences", "hardware": f"{HARDWARE}, other work running"}
    shares = ["routing share", "normalised MSE", "dead, %"]
    curve = {
        **facts,
        "measured": "one layer in place of MLP 10, after different numbers of training tokens",
        "seeds": 1,
        "date": "2026-11-25",
        "source": f"computed by results/curve_tables.py from results/{RAW}/learning-curve.json",
        "columns": ["million tokens", "layer", "loss increase, nats", "against the transcoder", *shares, "stable rank"],
    }
    write(RESULTS / "learning-curve" / "curve.json", {**curve, "rows": list(curve_rows())})
    methods = {
        **facts,
        "measured": "one layer in place of MLP 22",
        "seeds": 3,
        "date": "2026-11-24",
        "source": f"computed by results/curve_tables.py from results/{RAW}/equal-parameters.json",
        "columns": [
            "K",
            "layer",
            "loss increase, nats",
            "against the transcoder",
            "normalised MSE",
            "routing share",
            "dead, %",
        ],
    }
    write(RESULTS / "equal-parameters" / "methods.json", {**methods, "rows": list(method_rows())})


def curve_rows() -> Iterable[list[Cell]]:
    """One row per number of tokens and kind of layer."""
    runs = [run for run in evaluations("learning-curve") if not OTHER_SETTINGS.match(run["run"])]
    kinds = list(CURVE)
    for run in sorted(runs, key=lambda run: (run["trained_tokens"], kinds.index(kind(run)))):
        share = measured(run["intervals"]["routing_share"])
        others = (run["normalized_mse"], 100 * run["dead_share"], stable_rank(run))
        row = (CURVE[kind(run)], *losses(run, runs, "trained_tokens"), share, *others)
        yield [round(run["trained_tokens"] / MILLION, 2), *row]


def method_rows() -> Iterable[list[Cell]]:
    """One row per K and method, and per seed of one MxD."""
    runs = [run for run in evaluations("equal-parameters") if run["run"] != RANDOM_START]
    for run in sorted(runs, key=lambda run: (run["k"], list(CURVE).index(run["method"]), run["seed"])):
        others = (run["normalized_mse"], run["routing_share"], 100 * run["dead_share"])
        yield [run["k"], method_name(run), *losses(run, runs, "k"), *others]


def losses(run: Run, runs: list[Run], same: str) -> tuple[Cell, Cell]:
    """Loss increase, and its paired difference from the transcoder of the same setting, if there is one."""
    references = [other for other in runs if other["method"] == TRANSCODER and other[same] == run[same]]
    if run["method"] == TRANSCODER or not references:
        return measured(run["loss_increase"]), None
    difference = with_interval(np.mean, mean_losses([run]) - mean_losses(references))
    return measured(run["loss_increase"]), difference


def kind(run: Run) -> str:
    """Key of ``CURVE``."""
    return "paper" if run["run"].startswith("c-paper") else str(run["method"])


def method_name(run: Run) -> str:
    """Name of a layer in the table of equal parameters."""
    if run["run"] in SEEDS:
        return f"MxD, seed {run['seed']}" + (", 8 bits" if run["run"] == QUANTISED else "")
    return "MxD" if run["method"] == "mxd" else CURVE[run["method"]]


def stable_rank(run: Run) -> Cell:
    """Stable rank of the experts; null if they are vectors."""
    return (run["health"]["expert_ranks"] or {}).get("stable_rank")


def evaluations(name: str) -> list[Run]:
    """Evaluations of a raw file."""
    runs: list[Run] = json.loads((RESULTS / RAW / f"{name}.json").read_text("utf-8"))["runs"]
    return runs


if __name__ == "__main__":
    main()
