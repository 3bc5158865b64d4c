"""Compute the tables of circuits: python results/circuit_tables.py

Each line of the raw files is one prompt, as ``scripts/circuit_test.py`` writes it. Intervals are bootstrapped over
prompts, because the experts of one prompt are not independent.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tables import HARDWARE, RESULTS, Cell, write

MODELS = {"smollm2-135m": "SmolLM2-135M", "demo-v2": "demo-v2"}
DETAILED = "smollm2-135m"
"""Model whose lengths and layers have rows of their own."""
RESAMPLES = 2000
TOP, SHOWN = 5, 20
LAYER, METHOD, PREDICTED, MEASURED = 0, 4, 5, 6
EDGE_PREDICTED, EDGE_MEASURED, EDGE_ACTIVATION = 4, 5, 6
Prompt = dict[str, Any]
Pairs = list[NDArray[np.float64]]
"""Predicted and measured changes of each prompt, [number, 2]."""


def main() -> None:
    """Write the tables."""
    agreement: list[list[Cell]] = []
    recall: list[list[Cell]] = []
    sufficiency: list[list[Cell]] = []
    for folder, model in MODELS.items():
        prompts = read(folder, "circuits-test")
        found = {**parts(prompts), **(details(prompts) if folder == DETAILED else {})}
        agreement += [[model, name, *statistics(pairs)] for name, pairs in found.items()]
        recall.append([model, *recalls(read(folder, "circuits-every-expert"))])
        sufficiency.append([model, *shares(prompts)])
    facts = {
        "model": "SmolLM2-135M, layers 4, 10, 16 and 22; demo-v2 (a Llama of 6.9M parameters), layers 2 and 3",
        "tokens": "100 prompts of 8, 24 or 64 tokens and the start token",
        "seeds": [0],
        "hardware": HARDWARE,
        "date": "2026-11-28",
        "command": "python scripts/circuit_test.py smollm2-l4 smollm2-l10 smollm2-l16 smollm2-l22 "
        "--output circuits-test.jsonl",
        "source": "computed by results/circuit_tables.py from results/raw/*/circuits-*.jsonl.gz",
    }
    save(
        "agreement",
        "predicted change against the change measured by ablation",
        ["model", "what", "number", "correlation", "same sign, %", "slope"],
        agreement,
        facts,
    )
    save(
        "recall",
        "all active experts of short prompts: share of the five with the largest measured change that are found",
        [
            "model",
            "prompts",
            "active experts",
            "correlation over all",
            "among the 20 shown, %",
            "among the 5 predicted largest, %",
        ],
        recall,
        facts,
    )
    save(
        "sufficiency",
        "share of what all experts do to the target that remains, summed over prompts",
        [
            "model",
            "shown experts alone, %",
            "as many random experts, %",
            "others at random strengths, %",
            "worst draw, %",
        ],
        sufficiency,
        facts,
    )


def save(name: str, measured: str, columns: list[str], rows: list[list[Cell]], facts: dict[str, Any]) -> None:
    """Write one table."""
    write(RESULTS / "circuits" / f"{name}.json", {"measured": measured, **facts, "columns": columns, "rows": rows})


def read(folder: str, name: str) -> list[Prompt]:
    """Lines of a raw file."""
    with gzip.open(RESULTS / "raw" / folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def parts(prompts: Sequence[Prompt]) -> dict[str, Pairs]:
    """Experts of all prompts, edges, and the shown experts of a prompt together."""
    return {
        f"experts of {len(prompts)} prompts": experts(prompts, lambda _: True),
        "edges between experts, share of the activation": [
            np.array(
                [[row[column] / row[EDGE_ACTIVATION] for column in (EDGE_PREDICTED, EDGE_MEASURED)] for row in edges]
            )
            for edges in (prompt["edges"] for prompt in prompts)
            if edges
        ],
        "all shown experts of a prompt together": [
            np.array([[prompt["joint"]["predicted"], prompt["joint"]["measured"]]]) for prompt in prompts
        ],
    }


def details(prompts: Sequence[Prompt]) -> dict[str, Pairs]:
    """Experts of each length and layer, and those that are predicted from three gradients."""
    found = {}
    for length in dict.fromkeys(prompt["length"] for prompt in prompts):
        chosen = [prompt for prompt in prompts if prompt["length"] == length]
        found[f"experts of {len(chosen)} {length} prompts"] = experts(chosen, lambda _: True)
    for layer in sorted({row[LAYER] for prompt in prompts for row in prompt["nodes"]}):
        found[f"experts of layer {layer}"] = experts(prompts, partial(_is, LAYER, layer))
    found["experts predicted from three gradients"] = experts(prompts, partial(_is, METHOD, "path"))
    return found


def _is(column: int, value: object, row: list[Any]) -> bool:
    return bool(row[column] == value)


def experts(prompts: Sequence[Prompt], chosen: Callable[[list[Any]], bool]) -> Pairs:
    """Changes of the chosen experts of each prompt that has some."""
    rows = [[[row[PREDICTED], row[MEASURED]] for row in prompt["nodes"] if chosen(row)] for prompt in prompts]
    return [np.array(pairs) for pairs in rows if pairs]


def statistics(pairs: Pairs) -> list[Cell]:
    """Number, and with intervals: correlation, share of equal signs in percent, slope of measured on predicted."""

    def figures(sample: Sequence[NDArray[np.float64]]) -> list[float]:
        predicted, measured = np.concatenate(sample).T
        same = 100 * float(np.mean((predicted > 0) == (measured > 0)))
        slope = float(predicted @ measured / (predicted @ predicted))
        return [float(np.corrcoef(predicted, measured)[0, 1]), same, slope]

    return [sum(map(len, pairs)), *with_intervals(pairs, figures)]


def recalls(prompts: Sequence[Prompt]) -> list[Cell]:
    """Prompts, experts, correlation over all active experts, and recall of the truly largest in percent."""

    def figures(sample: Sequence[Prompt]) -> list[float]:
        shown, first, pairs = [], [], []
        for prompt in sample:
            rows = prompt["experts"]
            largest = {tuple(row[:3]) for row in sorted(rows, key=lambda row: -abs(row[4]))[:TOP]}
            predicted = {tuple(row[:3]) for row in sorted(rows, key=lambda row: -abs(row[3]))[:TOP]}
            shown.append(len(largest & {tuple(place) for place in prompt["shown"]}) / TOP)
            first.append(len(largest & predicted) / TOP)
            pairs += [row[3:5] for row in rows]
        return [float(np.corrcoef(np.array(pairs).T)[0, 1]), 100 * float(np.mean(shown)), 100 * float(np.mean(first))]

    return [len(prompts), sum(len(prompt["experts"]) for prompt in prompts), *with_intervals(prompts, figures)]


def shares(prompts: Sequence[Prompt]) -> list[Cell]:
    """Shares in percent of the summed effect of all experts."""

    def figures(sample: Sequence[Prompt]) -> list[float]:
        nothing = np.array([prompt["sufficiency"]["without_experts"] for prompt in sample])
        whole = float(np.sum([prompt["value"] for prompt in sample] - nothing))
        names = ("mean", "control", "random_mean", "random_worst")
        return [100 * float(np.sum([it["sufficiency"][name] for it in sample] - nothing)) / whole for name in names]

    return with_intervals(prompts, figures)


def with_intervals(sample: Sequence[Any], figures: Callable[[Sequence[Any]], list[float]]) -> list[Cell]:
    """Figures with 95 % intervals over prompts."""
    rng = np.random.default_rng(0)
    resampled = [
        figures([sample[index] for index in rng.integers(0, len(sample), len(sample))]) for _ in range(RESAMPLES)
    ]
    low, high = np.nanquantile(np.array(resampled), [0.025, 0.975], axis=0)
    return [{"value": value, "interval": [float(low[i]), float(high[i])]} for i, value in enumerate(figures(sample))]


if __name__ == "__main__":
    main()
