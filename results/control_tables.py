"""Compute the tables of the sanity controls: python results/control_tables.py"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tables import HARDWARE, RESULTS, Cell, measured, with_interval, write

RAW, RAW_USE = "raw/smollm2-135m/controls.jsonl", "raw/smollm2-135m/controls.json"
"""Errors of outputs; and losses, probes, labels, recurrence and searches."""
DEFAULT = "default"
KINDS = {
    DEFAULT: "MxD (default)",
    "freeze-table": "MxD, table frozen",
    "freeze-gate": "MxD, gate frozen",
    "freeze-both": "MxD, both frozen",
    "gaussian": "MxD, trained on Gaussian inputs",
    "transcoder": "transcoder",
    "skip-transcoder": "skip transcoder",
}
"""End of a run's name -> its name on the page, in the order of the rows."""
GAUSSIAN_LAYER = 10
"""Layer with a run that was trained on Gaussian inputs."""
Run = dict[str, Any]


def main() -> None:
    """Write the tables."""
    runs = [json.loads(line) for line in (RESULTS / RAW).read_text("utf-8").splitlines()]
    runs.sort(key=lambda run: (run["layer"], list(KINDS).index(kind(run))))
    used = json.loads((RESULTS / RAW_USE).read_text("utf-8"))
    facts = {
        "measured": "layers in place of an MLP, with parts frozen at their first values",
        "tokens": "8,192 tokens in 64 sequences that no run was trained on; 4,096 Gaussian inputs",
        "seeds": [0],
        "hardware": f"{HARDWARE}, other work running",
        "date": "2026-11-29",
        "source": f"computed by results/control_tables.py from results/{RAW} and results/{RAW_USE}",
    }
    folder = RESULTS / "sanity-controls"
    columns = ["layer", "replacement", "loss increase, nats", "minus the default's"]
    columns += ["strict routing share", "normalised MSE"]
    write(folder / "outputs.json", {**facts, "columns": columns, "rows": list(output_rows(runs, used))})
    columns = ["layer", "replacement", "on text", "on Gaussian inputs"]
    write(folder / "gaussian.json", {**facts, "columns": columns, "rows": list(gaussian_rows(runs))})
    columns = ["layer", "replacement", "ROC-AUC, five units", "minus the default's", "clear labels, %"]
    columns += ["found again, %", "wanted word, nats", "minus the default's word"]
    purposes = {"measured": "probes, labels, recurrence and searches by effect", "tokens": "given on the page"}
    write(folder / "use.json", {**facts, **purposes, "columns": columns, "rows": list(use_rows(runs, used))})


def kind(run: Run) -> str:
    """Key of ``KINDS``."""
    return str(run["run"]).split("-", 1)[1]


def errors(run: Run, name: str) -> NDArray[np.float64]:
    """Normalised MSE of each sequence."""
    return np.array(run["normalized_mse"][name])


def ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> Cell:
    """Ratio of two means, with its interval over sequences."""

    def quotient(pair_S2: NDArray[np.float64]) -> Any:
        return pair_S2[:, 0].mean() / pair_S2[:, 1].mean()

    return with_interval(quotient, np.stack([above, below], axis=1))


def output_rows(runs: list[Run], used: Run) -> Iterable[list[Cell]]:
    """Loss and error of each run; differences from the default of its layer are paired by sequence."""
    losses = {run["run"]: np.array(run["loss_increase_by_sequence"]) for run in used["evaluations"]}
    shares = {run["run"]: measured(run["intervals"]["strict_routing_share"]) for run in used["evaluations"]}
    for run in (run for run in runs if run["run"] in losses):
        error = with_interval(np.mean, errors(run, "replaced"))
        yield [run["layer"], KINDS[kind(run)], *compared(run["run"], losses), shares[run["run"]], error]


def use_rows(runs: list[Run], used: Run) -> Iterable[list[Cell]]:
    """Use of the experts of each run; differences are paired by data set and by word."""
    probed = used["probes"]["auc"].values()
    aucs = {name: np.array([by_run[name] for by_run in probed]) for name in used["probes"]["settings"]["weights"]}
    labels = {each["run"]: clear_labels(each) for each in used["labels"]}
    again = {each["run"]: measured(percent(each["runs"][0]["found_again"])) for each in used["recurrence"]}
    words = {each["run"]: np.array([one["found"]["change"] for one in each["searches"]]) for each in used["searches"]}
    for run in (run for run in runs if run["run"] in aucs):
        name = run["run"]
        auc, difference = compared(name, aucs)
        cells = [auc["value"], difference, labels[name], again[name], *compared(name, words)]
        yield [run["layer"], KINDS[kind(run)], *cells]


def compared(run: str, values: dict[str, NDArray[np.float64]]) -> tuple[Cell, Cell]:
    """Mean of a run, and its paired difference from the default of the layer."""
    default = f"{run.split('-')[0]}-{DEFAULT}"
    difference = None if run == default else with_interval(np.mean, values[run] - values[default])
    return with_interval(np.mean, values[run]), difference


def clear_labels(labels: Run) -> Cell:
    """Share of the active experts with a clear label, in per cent."""
    return with_interval(np.mean, 100.0 * (np.arange(labels["active_experts"]) < labels["clear"]))


def percent(interval: dict[str, float]) -> dict[str, float]:
    """A share and its interval, in per cent."""
    return {name: 100 * value for name, value in interval.items()}


def gaussian_rows(runs: list[Run]) -> Iterable[list[Cell]]:
    """Normalised MSE relative to that of the mean output, on both kinds of inputs, of whole layers of one block."""
    for run in (run for run in runs if run["layer"] == GAUSSIAN_LAYER and "freeze" not in kind(run)):
        both = (ratio(errors(inputs, "replaced"), errors(inputs, "mean")) for inputs in (run, run["gaussian"]))
        yield [run["layer"], KINDS[kind(run)], *both]


if __name__ == "__main__":
    main()
