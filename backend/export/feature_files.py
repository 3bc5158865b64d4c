"""Examples of experts as circuit-tracer's front end and Neuronpedia read them: one JSON file per feature."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from mxd.backend.export.attribution_graph import cantor
from mxd.backend.export.tables import Exported, Row, chunk_of
from mxd.trainer.storage.database.tables import AblationRecord
from mxd.trainer.utils.files import atomic_write

FOLDER = "features"


def write_features(session: Session, exported: Exported, experts: Collection[int], folder: Path) -> None:
    """Write ``features/F.json`` for experts of one run. F numbers layer and expert."""
    chunk = chunk_of(session, exported, sorted(experts))
    examples = chunk.examples_by_expert()
    target = folder / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    for row in chunk.experts:
        expert = row["expert"]
        number = cantor(exported.run.layer, expert)
        described = _feature(exported, row, examples.get(expert, []), chunk.ablations.get(expert))
        atomic_write(target / f"{number}.json", json.dumps({"index": number, **described}, ensure_ascii=False))


def _feature(exported: Exported, row: Row, examples: list[Row], influence: AblationRecord | None) -> Mapping[str, Any]:
    names = exported.vocabulary.names
    quantiles = []
    for number in sorted({one["bin"] for one in examples}):
        name = "Top activations"
        if number:
            low, high, _ = row["bins"][number - 1]
            name = f"Activations {low:.3g} to {high:.3g}"
        shown = [_example(example) for example in examples if example["bin"] == number]
        quantiles.append({"quantile_name": name, "examples": shown})
    return {
        "transcoder_id": exported.run.name,
        "examples_quantiles": quantiles,
        "top_logits": names(int(token) for token, _ in influence.promoted) if influence else [],
        "bottom_logits": names(int(token) for token, _ in influence.suppressed) if influence else [],
        "act_min": 0.0,
        "act_max": row["max_activation"],
        "quantile_values": [low for low, _, _ in reversed(row["bins"])],
        "histogram": list(row["histogram"]),
        "activation_frequency": row["density"],
    }


def _example(example: Row) -> Mapping[str, Any]:
    values = [0.0] * len(example["tokens"])
    for position, coefficient, _ in example["active"]:
        values[position] = coefficient
    return {
        "tokens_acts_list": values,
        "train_token_ind": example["position"],
        "is_repeated_datapoint": False,
        "tokens": list(example["tokens"]),
    }
