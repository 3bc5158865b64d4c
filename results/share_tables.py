"""Compute the table of routing shares in docs/findings.md: python results/share_tables.py"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from grid_tables import MILLION, TRANSCODER
from tables import HARDWARE, RESULTS, Cell, write

Run = dict[str, Any]


class Source(NamedTuple):
    """Evaluations that one row summarises."""

    name: str
    raw: str
    """File in results/raw/, without its ending."""
    layers: tuple[int, ...]
    default: Callable[[Run], bool] = lambda run: kind(run) == "mxd"
    transcoder: Callable[[Run], bool] = lambda run: kind(run) == TRANSCODER


SOURCES = (
    Source("SmolLM2, layer 10", "smollm2-135m/grid", (10,)),
    Source("SmolLM2, layer 22", "smollm2-135m/grid", (22,)),
    Source(
        "SmolLM2, four demo layers, the model's own text",
        "smollm2-135m/demo",
        (4, 10, 16, 22),
        lambda run: run["method"] == "mxd",
        lambda run: run["method"] == "transcoder",
    ),
    Source("small GPT-2, two layers", "small-gpt2/grid", (1, 3)),
    Source("small Llama, two layers", "small-llama/grid", (1, 4)),
    Source("tiny Llama, two layers", "tiny-llama/grid", (1, 3)),
)
SMALLEST_SPAN = 0.0005
"""Half of the last digit shown."""
COLUMNS = ("language model, layers", "million tokens", "runs")
SHARES = {"routing share": "routing_share", "strict routing share": "strict_routing_share"}


def main() -> None:
    """Write the table."""
    facts = {
        "measured": "shares of the default's runs, and the strict share of transcoders of the same tokens",
        "tokens": "8,192 held-out tokens in 64 sequences; tiny Llama: 16,384",
        "seeds": "of the weights",
        "hardware": HARDWARE,
        "date": "2026-11-27",
        "source": "computed by results/share_tables.py from results/raw/",
        "columns": [*COLUMNS, *SHARES, "decoder share", "transcoder, strict"],
    }
    write(RESULTS / "findings" / "shares.json", {**facts, "rows": [row(source) for source in SOURCES]})


def row(source: Source) -> list[Cell]:
    """Ranges over all runs of a source."""
    runs = json.loads((RESULTS / "raw" / f"{source.raw}.json").read_text("utf-8"))["runs"]
    runs = [run for run in runs if run["layer"] in source.layers]
    ours, theirs = list(filter(source.default, runs)), list(filter(source.transcoder, runs))
    tokens = span(run["trained_tokens"] / MILLION for run in ours)
    measured = (span(run.get(name) for run in ours) for name in (*SHARES.values(), "decoder_share"))
    return [source.name, tokens, len(ours), *measured, span(run.get("strict_routing_share") for run in theirs)]


def span(values: Iterable[float | None]) -> Cell:
    """Smallest and largest of the measured values, one of them if they do not differ; null if there is none."""
    measured = [value for value in values if value is not None]
    if not measured:
        return None
    low, high = min(measured), max(measured)
    return low if high - low < SMALLEST_SPAN else {"from": low, "to": high}


def kind(run: Run) -> str:
    """Beginning of a run's name."""
    return str(run["run"]).split("-", maxsplit=1)[0]


if __name__ == "__main__":
    main()
