"""Compute the table of learning rates and step sizes: python results/rate_tables.py"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from grid_tables import MILLION, mean_losses
from tables import HARDWARE, RESULTS, Cell, measured, with_interval, write

MODEL = "smollm2-135m"


class Setting(NamedTuple):
    """A run, and the optimizer settings that its evaluation does not contain."""

    raw: str
    run: str
    learning_rate: float
    batch_tokens: int
    default: str
    """Run of the same layer, tokens and seed with the default settings."""


DEFAULTS = ("c-ours-262144", "mxd-l10-s0-1M", "mxd-l10-s0-10M", "mxd-l22-s0-10M")
SETTINGS = (
    Setting("learning-curve", "d-lr0.001-b2048-262144", 1e-3, 2048, DEFAULTS[0]),
    Setting("learning-curve", "d-lr0.003-b2048-262144", 3e-3, 2048, DEFAULTS[0]),
    Setting("learning-curve", "c-ours-262144", 3e-3, 512, DEFAULTS[0]),
    Setting("learning-curve", "l10-b2048-s0", 3e-3, 2048, DEFAULTS[1]),
    Setting("grid", "mxd-l10-s0-1M", 3e-3, 512, DEFAULTS[1]),
    Setting("grid", "mxd-l10-s0-10M", 1.5e-3, 2048, DEFAULTS[2]),
    Setting("rates", "mxd-l10-rate3-10M", 3e-3, 2048, DEFAULTS[2]),
    Setting("rates", "mxd-l10-steps512-10M", 1.5e-3, 512, DEFAULTS[2]),
    Setting("rates", "mxd-l10-rate3-steps512-10M", 3e-3, 512, DEFAULTS[2]),
    Setting("grid", "mxd-l22-s0-10M", 1.5e-3, 2048, DEFAULTS[3]),
    Setting("rates", "mxd-l22-rate3-steps512-10M", 3e-3, 512, DEFAULTS[3]),
)
MEASURES: dict[str, Callable[[dict[str, Any]], Cell]] = {
    "normalised MSE": lambda run: run["normalized_mse"],
    "routing share": lambda run: run["routing_share"],
    "strict routing share": lambda run: run.get("strict_routing_share"),
    "dead, %": lambda run: 100 * run["dead_share"],
    "stable rank": lambda run: run["health"]["expert_ranks"]["stable_rank"],
}
LOSSES = ("loss increase, nats", "against the default")


def main() -> None:
    """Write the table."""
    raw = ", ".join(f"results/raw/{MODEL}/{name}.json" for name in sorted({setting.raw for setting in SETTINGS}))
    facts = {
        "measured": "MxDs of the default form by number of tokens, learning rate and tokens per step",
        "tokens": "8,192 held-out tokens in 64 sequences",
        "seeds": 1,
        "hardware": HARDWARE,
        "date": "2026-11-27",
        "source": f"computed by results/rate_tables.py from {raw}",
        "columns": ["layer", "million tokens", "learning rate", "tokens per step", *LOSSES, *MEASURES],
    }
    write(RESULTS / "training-options" / "rates.json", {**facts, "rows": list(table())})


def table() -> Iterable[list[Cell]]:
    """One row per run. Differences are paired by sequence."""
    runs = {name: run for raw in {setting.raw for setting in SETTINGS} for name, run in evaluations(raw).items()}
    for setting in SETTINGS:
        run = runs[setting.run]
        place = [run["layer"], run["trained_tokens"] / MILLION, setting.learning_rate, setting.batch_tokens]
        measures = (measure(run) for measure in MEASURES.values())
        yield [*place, measured(run["loss_increase"]), difference(run, runs[setting.default]), *measures]


def difference(run: dict[str, Any], other: dict[str, Any]) -> Cell:
    """Loss increase minus another run's; null for the same run, and without the losses of single sequences."""
    if run["run"] == other["run"] or "loss_increase_by_sequence" not in run:
        return None
    return with_interval(np.mean, mean_losses([run]) - mean_losses([other]))


def evaluations(name: str) -> dict[str, dict[str, Any]]:
    """Evaluations of a raw file by run name."""
    raw = json.loads((RESULTS / "raw" / MODEL / f"{name}.json").read_text("utf-8"))
    return {run["run"]: run for run in raw["runs"]}


if __name__ == "__main__":
    main()
