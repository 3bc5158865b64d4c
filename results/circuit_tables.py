"""Compute the table of circuits: python results/circuit_tables.py

Each line of the raw files is one prompt, as ``scripts/circuit_agreement.py`` writes it. Intervals are bootstrapped over
prompts, because the experts of one prompt are not independent.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from tables import HARDWARE, RESULTS, Cell, write

RAW = RESULTS / "raw" / "smollm2-135m"
RESAMPLES = 2000
LAYERS = (4, 10, 16, 22)
FILES = {
    "kept": "kept",
    "dropped": "dropped",
    "finetuned": "kept, earlier layers fine-tuned",
    "paper": "kept, earlier layers, paper's mixing",
}
"""Raw file -> its treatment of errors, and its layers if they are not the demo's."""
MIN_CORRELATION, MIN_SAME_SIGN = 0.3, 65
"""Below one of these, the page Circuits says that a graph fails."""
LAYER, POSITION, PREDICTED, MEASURED = 0, 1, 5, 6
Prompt = NDArray[np.float64]
"""One row per expert; the columns are those of the raw file."""


def main() -> None:
    """Write the table."""
    rows, checks = [], []
    for file, errors in FILES.items():
        prompts = read(f"circuits-{file}.jsonl.gz")
        table = list(summary(errors, prompts))
        rows += table if file == "kept" else [row for row in table if row[1] in (table[0][1], "layer 22")]
        checks.append([errors, len(prompts), sum(map(passes, prompts))])
    facts = {
        "measured": "predicted effect on the logit against the effect of ablating the expert",
        "model": "SmolLM2-135M",
        "layer": "4, 10, 16 and 22, traced together",
        "tokens": "prompts of 32 tokens and the start token",
        "seeds": [0],
        "hardware": HARDWARE,
        "date": "2026-11-27, earlier layers 2026-11-25",
        "command": "python scripts/circuit_agreement.py smollm2-l4 smollm2-l10 smollm2-l16 smollm2-l22 "
        "--dataset data/demo/held_out.jsonl.gz --data data/demo --errors kept --output pairs.jsonl",
        "source": "computed by results/circuit_tables.py from results/raw/smollm2-135m/circuits-*.jsonl.gz",
        "columns": ["errors", "experts", "number", "correlation", "same sign, %", "slope"],
    }
    write(RESULTS / "circuits" / "layers.json", {**facts, "rows": rows})
    columns = ["errors", "graphs", "pass the check"]
    write(RESULTS / "circuits" / "checks.json", {**facts, "columns": columns, "rows": checks})


def read(name: str) -> list[Prompt]:
    """Experts of each prompt."""
    with gzip.open(RAW / name, "rt", encoding="utf-8") as lines:
        return [np.array(json.loads(line)["experts"], dtype=np.float64).reshape(-1, 7) for line in lines]


def passes(prompt: Prompt) -> bool:
    """Return whether the page Circuits would not say that the graph fails."""
    correlation, same_sign, _ = statistics([prompt])
    return correlation >= MIN_CORRELATION and same_sign >= MIN_SAME_SIGN


def summary(errors: str, prompts: list[Prompt]) -> Iterable[list[Cell]]:
    """Rows of all experts, of each layer, of large predicted effects, and of the last and the earlier tokens."""
    last = max(int(prompt[:, POSITION].max()) for prompt in prompts)
    parts = {f"all of {len(prompts)} prompts": prompts}
    for layer in LAYERS:
        parts[f"layer {layer}"] = [prompt[prompt[:, LAYER] == layer] for prompt in prompts]
    parts["layer 22, above 0.3"] = [large(prompt[prompt[:, LAYER] == 22]) for prompt in prompts]
    parts["other layers, above 0.3"] = [large(prompt[prompt[:, LAYER] < 22]) for prompt in prompts]
    parts["on the last token"] = [prompt[prompt[:, POSITION] == last] for prompt in prompts]
    parts["on earlier tokens"] = [prompt[prompt[:, POSITION] < last] for prompt in prompts]
    for name, part in parts.items():
        yield [errors, name, sum(map(len, part)), *agreement(part)]


def large(prompt: Prompt) -> Prompt:
    """Experts whose predicted effect is above 0.3; the limit was chosen on these data."""
    return prompt[np.abs(prompt[:, PREDICTED]) > 0.3]


def agreement(prompts: list[Prompt]) -> list[Cell]:
    """Correlation, share of equal signs in percent, and slope, each with its interval."""
    filled = [prompt for prompt in prompts if len(prompt)]
    rng = np.random.default_rng(0)
    resampled = [
        statistics(filled[index] for index in rng.integers(0, len(filled), len(filled))) for _ in range(RESAMPLES)
    ]
    low, high = np.nanquantile(np.array(resampled), [0.025, 0.975], axis=0)
    values = statistics(filled)
    return [{"value": value, "interval": [float(low[i]), float(high[i])]} for i, value in enumerate(values)]


def statistics(prompts: Iterable[Prompt]) -> list[float]:
    """Correlation, share of equal signs in percent, and least-squares slope of measured on predicted effects."""
    pairs = np.concatenate(list(chain(prompts)))[:, [PREDICTED, MEASURED]]
    predicted, measured = pairs.T
    correlation = float(np.corrcoef(predicted, measured)[0, 1])
    same_sign = 100 * float(np.mean((predicted > 0) == (measured > 0)))
    return [correlation, same_sign, float(predicted @ measured / (predicted @ predicted))]


if __name__ == "__main__":
    main()
