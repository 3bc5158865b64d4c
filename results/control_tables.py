"""Compute the tables of the sanity controls: python results/control_tables.py"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from grid_tables import held_out, loss_per_share, mean_losses
from tables import HARDWARE, RESULTS, Cell, measured, with_interval, write

RAW = "raw/smollm2-135m/controls.json"
DEFAULT = "default"
KINDS = {
    DEFAULT: "MxD (default)",
    "freeze-table": "MxD, table frozen",
    "freeze-gate": "MxD, gate frozen",
    "freeze-both": "MxD, both frozen",
    "random-gate": "MxD, random start, gate frozen",
    "gaussian": "MxD, trained on Gaussian inputs",
    "paper": "MxD, the paper's form and start",
    "transcoder": "transcoder",
    "skip": "skip transcoder",
}
"""End of a run's name -> its name on the page, in the order of the rows."""
Runs = list[dict[str, Any]]


def main() -> None:
    """Write all tables."""
    raw = json.loads((RESULTS / RAW).read_text("utf-8"))
    runs = raw["runs"]
    facts = {
        "tokens": held_out(runs[0]),
        "seeds": [0],
        "hardware": f"{HARDWARE}, other work running",
        "date": "2026-11-28",
        "source": f"computed by results/control_tables.py from results/{RAW}",
    }
    columns = ["layer", "replacement", "loss increase, nats", "against the default", "loss / strict share"]
    columns += ["routing share", "strict routing share", "decoder share", "normalised MSE", "dead, %", "stable rank"]
    loss = {"measured": "one layer in place of its MLP, with parts of it frozen at their first values"}
    folder = RESULTS / "sanity-controls"
    write(folder / "loss.json", {**loss, **facts, "columns": columns, "rows": list(loss_rows(runs))})
    columns = ["layer", "replacement", "median cosine", "largest cosine", "cosine of D"]
    alike = {"measured": "cosine of each expert's matrix, D diag(c_n), and the original decoder, as vectors"}
    rows = list(cosine_rows(raw["decoder_cosines"]))
    write(folder / "decoder.json", {**alike, **facts, "tokens": None, "columns": columns, "rows": rows})
    columns = ["layer 10", "mean F1 of a probe", "labelled, %", "balanced accuracy of labels", "found again, %"]
    used = {"measured": "experts of layer 10 as probes of 17 kinds of text, their labels, and those of a second seed"}
    write(
        folder / "experts.json", {**used, **facts, "seeds": [0, 1], "columns": columns, "rows": list(expert_rows(raw))}
    )


def kind(run: dict[str, Any]) -> str:
    """Key of ``KINDS``."""
    return str(run["run"]).split("-", 1)[1]


def loss_rows(runs: Runs) -> Iterable[list[Cell]]:
    """One row per layer and replacement."""
    order = list(KINDS)
    for run in sorted(runs, key=lambda run: (run["layer"], order.index(kind(run)))):
        (default,) = (one for one in runs if one["layer"] == run["layer"] and kind(one) == DEFAULT)
        difference = None if run is default else with_interval(np.mean, mean_losses([run]) - mean_losses([default]))
        strict = run["intervals"].get("strict_routing_share")
        yield [
            run["layer"],
            KINDS[kind(run)],
            measured(run["loss_increase"]),
            difference,
            loss_per_share([run]),
            run["routing_share"],
            strict and measured(strict),
            run.get("decoder_share"),
            run["normalized_mse"],
            100 * run["dead_share"],
            (run["health"]["expert_ranks"] or {}).get("stable_rank"),
        ]


def cosine_rows(cosines: Runs) -> Iterable[list[Cell]]:
    """One row per layer and kind of MxD."""
    order = list(KINDS)
    for one in sorted(cosines, key=lambda one: (one["layer"], order.index(kind(one)))):
        yield [one["layer"], KINDS[kind(one)], one["median"], one["largest"], one["shared_decoder"]]


def expert_rows(raw: dict[str, Any]) -> Iterable[list[Cell]]:
    """One row per replacement of which experts were examined."""
    for name, title in KINDS.items():
        values = [raw[measure].get(name) for measure in ("probes", "labelled", "label_accuracy", "found_again")]
        if any(value is not None for value in values):
            yield [title, *values]


if __name__ == "__main__":
    main()
