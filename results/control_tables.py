"""Compute the tables of the sanity controls: python results/control_tables.py"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tables import HARDWARE, RESULTS, Cell, with_interval, write

RAW = "raw/smollm2-135m/controls.jsonl"
DEFAULT = "default"
KINDS = {
    DEFAULT: "MxD (default)",
    "freeze-table": "MxD, table frozen",
    "freeze-gate": "MxD, gate frozen",
    "freeze-both": "MxD, both frozen",
    "gaussian": "MxD, trained on Gaussian inputs",
    "transcoder": "transcoder",
}
"""End of a run's name -> its name on the page, in the order of the rows."""
Run = dict[str, Any]


def main() -> None:
    """Write both tables."""
    runs = [json.loads(line) for line in (RESULTS / RAW).read_text("utf-8").splitlines()]
    runs.sort(key=lambda run: (run["layer"], list(KINDS).index(kind(run))))
    facts = {
        "measured": "outputs of layers in place of an MLP, with parts frozen at their first values",
        "tokens": "8,192 tokens in 64 sequences that no run was trained on; 4,096 Gaussian inputs",
        "seeds": [0],
        "hardware": f"{HARDWARE}, other work running",
        "date": "2026-11-28",
        "source": f"computed by results/control_tables.py from results/{RAW}",
    }
    columns = ["layer", "replacement", "normalised MSE", "against the default", "strict share of the output"]
    columns += ["decoder share of the output", "cosine with the MLP's decoder", "largest cosine", "dead, %"]
    rows = [row(run, runs) for run in runs]
    write(RESULTS / "sanity-controls" / "outputs.json", {**facts, "columns": columns, "rows": rows})
    columns = ["layer", "replacement", "on text", "on Gaussian inputs"]
    rows = list(gaussian_rows(runs))
    write(RESULTS / "sanity-controls" / "gaussian.json", {**facts, "columns": columns, "rows": rows})


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


def row(run: Run, runs: list[Run]) -> list[Cell]:
    """Row of a run."""
    (default,) = (one for one in runs if one["layer"] == run["layer"] and kind(one) == DEFAULT)
    own = errors(run, "replaced")
    shares = (
        ratio(errors(run, name), errors(run, "mean")) if name in run["normalized_mse"] else None
        for name in ("constant", "constant_dense")
    )
    cosine = run.get("decoder_cosine", {})
    return [
        run["layer"],
        KINDS[kind(run)],
        with_interval(np.mean, own),
        None if run is default else with_interval(np.mean, own - errors(default, "replaced")),
        *shares,
        cosine.get("median"),
        cosine.get("largest"),
        100 * run["dead_share"],
    ]


def gaussian_rows(runs: list[Run]) -> Iterable[list[Cell]]:
    """Normalised MSE relative to that of the mean output, on both kinds of inputs."""
    for run in runs:
        both = (ratio(errors(inputs, "replaced"), errors(inputs, "mean")) for inputs in (run, run["gaussian"]))
        yield [run["layer"], KINDS[kind(run)], *both]


if __name__ == "__main__":
    main()
