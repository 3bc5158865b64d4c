"""Compute the tables of the demo's runs from the output of ``mxd evaluate``: python results/demo_tables.py"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tables import HARDWARE, RESULTS, Cell, measured, write

RAW = RESULTS / "raw" / "smollm2-135m" / "demo.json"


def demo_runs(runs: Sequence[dict[str, Any]]) -> Iterable[list[Cell]]:
    """One row per run of the demo."""
    for result in runs:
        shares = [measured(result["intervals"][name]) for name in ("routing_share", "strict_routing_share")]
        ranks = result["health"]["expert_ranks"]
        yield [
            result["run"],
            result["num_experts"],
            result["trained_tokens"] / 1e6,
            result["ce_mean_ablated"] - result["ce_original"],
            measured(result["loss_increase"]),
            *shares,
            result["normalized_mse"],
            100 * result["dead_share"],
            ranks and ranks["stable_rank"],
        ]


def lowered(runs: Sequence[dict[str, Any]]) -> Iterable[list[Cell]]:
    """One row per run of layer 10 and K: the loss increase where fewer experts are active than in training."""
    for result in runs:
        yield [result["run"], result["k"], measured(result["loss_increase"]), result["normalized_mse"]]


def jacobians(runs: Sequence[dict[str, Any]]) -> Iterable[list[Cell]]:
    """One row per run of the demo: agreement of its Jacobian with the MLP's."""
    kinds = ("random", "random_control", "data", "data_control")
    for result in runs:
        yield [
            result["run"],
            measured(result["loss_increase"]),
            *(measured(result["jacobian"][kind]) for kind in kinds),
        ]


TABLES: dict[str, dict[str, Any]] = {
    "centred-mixing/demo": {
        "measured": "one run in place of its MLP",
        "tokens": "8,192 held-out tokens in 64 sequences",
        "date": "2026-11-26",
        "columns": [
            "run",
            "experts",
            "million tokens",
            "mean-ablated MLP, nats",
            "loss increase, nats",
            "routing share",
            "strict routing share",
            "normalised MSE",
            "dead, %",
            "stable rank",
        ],
        "rows": demo_runs,
    },
    "centred-mixing/lowered": {
        "measured": "one run in place of its MLP, with fewer active experts than in training",
        "tokens": "8,192 held-out tokens in 64 sequences",
        "date": "2026-11-26",
        "columns": ["run", "K", "loss increase, nats", "normalised MSE"],
        "rows": lowered,
    },
    "jacobians/runs": {
        "measured": "mean cosine of the Jacobian-vector products of layer and MLP",
        "tokens": "8,192 held-out tokens in 64 sequences; Jacobians at 256 of them, 8 directions of each kind",
        "date": "2026-11-26",
        "columns": ["run", "loss increase, nats", "random directions", "control", "data directions", "control, data"],
        "rows": jacobians,
    },
}


def main() -> None:
    """Write all tables."""
    raw = json.loads(RAW.read_text("utf-8"))
    facts = {"seeds": 1, "hardware": HARDWARE, "source": f"computed by results/demo_tables.py from {RAW.name}"}
    for name, table in TABLES.items():
        runs = raw["lowered" if table["rows"] is lowered else "runs"]
        write(RESULTS / f"{name}.json", {**table, **facts, "rows": list(table["rows"](runs))})


if __name__ == "__main__":
    main()
