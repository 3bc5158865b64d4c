"""Compute the tables of learning rates, step sizes and layer sizes: python results/rate_tables.py"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from grid_tables import MILLION, mean_losses
from tables import HARDWARE, RESULTS, Cell, measured, with_interval, write

MODEL = "smollm2-135m"
RAW = ("learning-curve", "grid", "rates")
"""Files of evaluations, without the ending."""


class Setting(NamedTuple):
    """A run, and the optimizer settings that its evaluation does not contain."""

    run: str
    learning_rate: float
    batch_tokens: int


DEFAULTS = ("c-ours-262144", "mxd-l10-s0-1M", "mxd-l10-s0-10M", "mxd-l22-s0-10M")
"""Runs with the default settings for their number of tokens."""
SETTINGS = (
    Setting("d-lr0.001-b2048-262144", 1e-3, 2048),
    Setting("d-lr0.003-b2048-262144", 3e-3, 2048),
    Setting("c-ours-262144", 3e-3, 512),
    Setting("l10-b2048-s0", 3e-3, 2048),
    Setting("mxd-l10-s0-1M", 3e-3, 512),
    Setting("mxd-l10-s0-10M", 1.5e-3, 2048),
    Setting("mxd-l10-rate3-10M", 3e-3, 2048),
    Setting("mxd-l10-steps512-10M", 1.5e-3, 512),
    Setting("mxd-l10-rate3-steps512-10M", 3e-3, 512),
    Setting("mxd-l22-s0-10M", 1.5e-3, 2048),
    Setting("mxd-l22-rate3-steps512-10M", 3e-3, 512),
)
MEASURES: dict[str, Callable[[dict[str, Any]], Cell]] = {
    "normalised MSE": lambda run: run["normalized_mse"],
    "routing share": lambda run: run["routing_share"],
    "strict routing share": lambda run: run.get("strict_routing_share"),
    "dead, %": lambda run: 100 * run["dead_share"],
    "stable rank": lambda run: run["health"]["expert_ranks"]["stable_rank"],
}
LOSSES = ("loss increase, nats", "against the default")
WIDTHS = {"tiny-llama": "tiny Llama, d = 64", "small-llama": "small Llama, d = 256"}
"""Folder of results/raw/ -> language model and width, from the narrowest."""
RATES = (7.5e-4, 1.5e-3, 3e-3, 6e-3, 1.2e-2)
DEFAULT_RATE = 3e-3
"""Learning rates of the runs of ``sizes``, and the default for their number of tokens."""


def main() -> None:
    """Write both tables."""
    facts = {
        "measured": "MxDs of the default form by width of the language model, number of experts and learning rate",
        "tokens": "524,288 training tokens; 8,192 held-out tokens in 64 sequences, tiny Llama 16,384 in 128",
        "seeds": 1,
        "hardware": HARDWARE,
        "date": "2026-11-27",
        "source": "computed by results/rate_tables.py from results/raw/*/sizes.json",
        "columns": [
            "language model",
            "experts N",
            *(f"normalised MSE, {rate}" for rate in RATES),
            f"loss increase at {DEFAULT_RATE}",
            "rate of the lowest loss",
            "loss there minus the default's",
        ],
    }
    write(RESULTS / "training-options" / "sizes.json", {**facts, "rows": list(sizes())})
    raw = ", ".join(f"results/raw/{MODEL}/{name}.json" for name in RAW)
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
    runs = {run["run"]: run for name in RAW for run in evaluations(name)}
    defaults = {scale(runs[name]): runs[name] for name in DEFAULTS}
    for name, *optimizer in SETTINGS:
        run = runs[name]
        layer, tokens = scale(run)
        measures = (measure(run) for measure in MEASURES.values())
        losses = (measured(run["loss_increase"]), difference(run, defaults[layer, tokens]))
        yield [layer, tokens / MILLION, *optimizer, *losses, *measures]


def sizes() -> Iterable[list[Cell]]:
    """One row per language model and number of experts: errors at each rate, and the rate with the lowest loss."""
    for model, name in WIDTHS.items():
        runs = {(run["num_experts"], run["learning_rate"]): run for run in evaluations("sizes", model)}
        for experts in sorted({number for number, _ in runs}):
            of_rate = {rate: runs[experts, rate] for rate in RATES}
            best = min(RATES, key=lambda rate: of_rate[rate]["loss_increase"]["value"])
            errors = (of_rate[rate]["normalized_mse"] for rate in RATES)
            default = of_rate[DEFAULT_RATE]
            yield [name, experts, *errors, measured(default["loss_increase"]), best, difference(of_rate[best], default)]


def scale(run: dict[str, Any]) -> tuple[int, int]:
    """Layer and number of training tokens. Runs are compared only if both are equal."""
    return run["layer"], run["trained_tokens"]


def difference(run: dict[str, Any], other: dict[str, Any]) -> Cell:
    """Loss increase minus another run's; null for the same run, and without the losses of single sequences."""
    if run["run"] == other["run"] or "loss_increase_by_sequence" not in run:
        return None
    return with_interval(np.mean, mean_losses([run]) - mean_losses([other]))


def evaluations(name: str, model: str = MODEL) -> list[dict[str, Any]]:
    """Evaluations of a raw file."""
    runs: list[dict[str, Any]] = json.loads((RESULTS / "raw" / model / f"{name}.json").read_text("utf-8"))["runs"]
    return runs


if __name__ == "__main__":
    main()
