"""A circuit as a folder for other programs: the graph, and a JSON file with the examples of each of its experts."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from mxd.backend.database import annotations as notes
from mxd.backend.errors import NoIndexError, RunNotFoundError
from mxd.backend.export.attribution_graph import LOCAL_SCAN, GraphContext, attribution_graph, cantor, write_graph
from mxd.backend.export.tables import Exported, Row, chunk_of, open_run
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.automatic_labels import clear_labels
from mxd.backend.queries.runs import find_run
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
from mxd.trainer.storage.database.tables import AblationRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.files import atomic_write

FOLDER = "features"


def export_circuit(
    session: Session,
    runs: Sequence[Run],
    circuit: Circuit,
    check: CircuitCheck | None,
    folder: Path,
    model_id: str | None = None,
) -> Path:
    """Write a circuit, and feature files for the experts of indexed runs. Returns the path of the graph.

    A run that the database does not know has no labels and no feature files.

    Args:
        check: its measured effects, if any.
        folder: new folder, or one with other graphs, which are kept.
        model_id: Neuronpedia's id of the language model.
    """
    labels = {}
    for run in runs:
        experts = {expert.expert for expert in circuit.experts if expert.run == run.name}
        try:
            record = find_run(session, run.name)
            # User labels take precedence over automatic ones.
            labels[run.name] = clear_labels(session, record, experts) | notes.labels_of(session, run.name, experts)
            exported = open_run(session, record, Vocabulary(run.tokenizer))
        except (RunNotFoundError, NoIndexError):
            continue
        write_features(session, exported, experts, folder)
    return write_graph(attribution_graph(circuit, GraphContext(labels, check, model_id or LOCAL_SCAN)), folder)


def write_features(session: Session, exported: Exported, experts: Collection[int], folder: Path) -> None:
    """Write ``features/F.json``, as circuit-tracer's front end and Neuronpedia read it, for experts of one run.

    F numbers layer and expert.
    """
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
    for position, activation, _ in example["active"]:
        values[position] = activation
    return {
        "tokens_acts_list": values,
        "train_token_ind": example["position"],
        "is_repeated_datapoint": False,
        "tokens": list(example["tokens"]),
    }
