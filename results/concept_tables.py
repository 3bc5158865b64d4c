"""Compute the table of steering towards concepts by effect: python results/concept_tables.py"""

from __future__ import annotations

import json

from tables import HARDWARE, RESULTS, measured, write

SOURCE = "smollm2-135m/steer-by-effect.json"


def main() -> None:
    """Write the table."""
    raw = json.loads((RESULTS / "raw" / SOURCE).read_text())
    rows = [
        [
            name,
            measured(its["gain"]),
            measured(its["loss_increase"]),
            *(measured(its[f"over_{other}"]) for other in ("random", "detection", "difference_of_means")),
        ]
        for name, its in raw["methods"].items()
    ]
    facts = {
        "measured": "gain of the concept's score after steering, on prompts that did not choose the strength",
        "model": "SmolLM2-135M-Instruct, layer 22; layers 4, 10, 16 and 22 for five experts",
        "tokens": "10 concepts, 40 texts each of at most 48 tokens; 8 openings with 24 new tokens",
        "seeds": [0],
        "hardware": HARDWARE,
        "date": "2026-11-28",
        "command": "python -m scripts.steer_concepts TEXTS.parquet steer-by-effect.jsonl",
        "source": f"computed by results/concept_tables.py from results/raw/{SOURCE}",
        "columns": [
            "method",
            "gain",
            "loss increase, nats",
            "over random",
            "over detection",
            "over difference of means",
        ],
        "rows": rows,
    }
    write(RESULTS / "steer-by-effect" / "methods.json", facts)


if __name__ == "__main__":
    main()
