"""Attribution graphs in Anthropic's format, as Neuronpedia and circuit-tracer's front end read them.

    SLUG.json             metadata, nodes, links
    graph-metadata.json   metadata of all graphs in the folder
    features/F.json       examples of a feature; see ``write_features``

A feature is numbered by Cantor's pairing of its layer and expert, as in circuit-tracer. Only the target and experts are
nodes. A link's ``weight`` is its live effect: minus the predicted change of the target, or of the expert's score, when
its source is ablated. The fields ``run``, ``expert``, ``predicted_effect`` and ``measured_effect`` of nodes and links,
and ``mxd_circuit`` of the metadata, are ours: other programs ignore them. Effects are changes under ablation.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from mxd.backend.database.annotations import labels_of
from mxd.backend.errors import NoIndexError, RunNotFoundError
from mxd.backend.export.tables import Effects, Exported, Row, chunk_of
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.automatic_labels import clear_labels
from mxd.backend.queries.runs import find_index, find_run
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck, CircuitNode
from mxd.trainer.config.analysis import target_tokens
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.files import atomic_write

FEATURE = "cross layer transcoder"
LOGIT = "logit"
LOCAL_SCAN = "./data/features"
"""Place of feature files for circuit-tracer's local server: the folder ``features`` of its data folder."""
INDEX_FILE = "graph-metadata.json"


Labels = Mapping[str, Mapping[int, str]]
"""Labels of experts, by run and expert."""


def cantor(x: int, y: int) -> int:
    """Number a pair of non-negative integers."""
    return (x + y) * (x + y + 1) // 2 + y


def attribution_graph(
    circuit: Circuit, labels: Labels, check: CircuitCheck | None = None, scan: str = LOCAL_SCAN
) -> dict[str, Any]:
    """Return a circuit in this format, with measured effects if it was checked. ``scan``: Neuronpedia's id of the
    language model, or the folder of feature files."""
    # Two after the last one, as in circuit-tracer.
    layer = max((node.layer for node in circuit.nodes if node.layer is not None), default=0) + 2
    # The first token that the target names; the most probable one if it names none.
    token = next(iter(target_tokens(circuit.target)), circuit.candidates[0].id)
    ids = [
        f"{f'{layer}_{token}' if node.kind == 'target' else f'{node.layer}_{node.expert}'}_{node.position}"
        for node in circuit.nodes
    ]
    # Share of the shown experts' absolute effects up to each one; none for the target, which comes first.
    sizes = [abs(node.predicted) for node in circuit.nodes[1:]]
    total = sum(sizes) or 1.0
    influence = [None, *(min(1.0, value / total) for value in accumulate(sizes))]
    nodes = len(circuit.nodes)
    measured, edges = ([None] * nodes, [None] * len(circuit.edges)) if check is None else (check.measured, check.edges)
    return {
        "metadata": _metadata(circuit, check, scan),
        "qParams": {"pinnedIds": [], "supernodes": [], "linkType": "both", "clickedId": "", "sg_pos": ""},
        "nodes": [
            {
                **(_target(circuit, layer, token) if node.kind == "target" else _expert(node, effect, labels)),
                "ctx_idx": node.position,
                "node_id": id,
                "jsNodeId": id,
                "influence": score,
            }
            for node, effect, id, score in zip(circuit.nodes, measured, ids, influence, strict=True)
        ],
        "links": [
            {
                "source": ids[edge.source],
                "target": ids[edge.target],
                "weight": -edge.predicted,
                **_effects(edge.predicted, effect),
            }
            for edge, effect in zip(circuit.edges, edges, strict=True)
        ],
    }


def write_graph(graph: Mapping[str, Any], folder: Path) -> Path:
    """Write a graph, and add it to the folder's list of graphs. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    metadata = graph["metadata"]
    path = folder / f"{metadata['slug']}.json"
    atomic_write(path, json.dumps(graph, ensure_ascii=False) + "\n")
    index = folder / INDEX_FILE
    listed = json.loads(index.read_text("utf-8"))["graphs"] if index.is_file() else []
    others = [other for other in listed if other["slug"] != metadata["slug"]]
    atomic_write(index, json.dumps({"graphs": [*others, metadata]}, ensure_ascii=False, indent=1) + "\n")
    return path


def _metadata(circuit: Circuit, check: CircuitCheck | None, scan: str) -> dict[str, Any]:
    texts = [token.text for token in circuit.tokens]
    prompt = "".join(token.text for token in circuit.tokens if not token.start)
    digest = blake2b(repr((circuit.runs, texts, circuit.label)).encode(), digest_size=4).hexdigest()
    words = "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in prompt.lower()).split()[:6])
    return {
        "slug": f"{words or 'prompt'}-{digest}",
        "scan": scan,
        "transcoder_list": [],
        "prompt_tokens": texts,
        "prompt": prompt,
        "node_threshold": 1.0,
        "schema_version": 1,
        "info": {"generator": {"name": "mxd-explorer"}, "description": f"Runs: {', '.join(circuit.runs)}."},
        "mxd_circuit": {
            "runs": circuit.runs,
            "layers": circuit.layers,
            "target": circuit.target.model_dump(),
            "value": circuit.value,
            "active_experts": circuit.active,
            **({} if check is None else {"agreement": asdict(check.experts)}),
        },
    }


def _target(circuit: Circuit, layer: int, token: int) -> dict[str, Any]:
    probability = next((it.probability for it in circuit.candidates if it.id == token), 0.0)
    return {
        "feature": token,
        "feature_type": LOGIT,
        "layer": str(layer),
        "is_target_logit": True,
        "token_prob": probability,
        # circuit-tracer's page reads the probability from the label of a logit, and draws nothing without it.
        "clerp": f"{circuit.label} = {circuit.value:.3f} (p={probability:.3f})",
    }


def _expert(node: CircuitNode, measured: float | None, labels: Labels) -> dict[str, Any]:
    assert node.layer is not None and node.expert is not None and node.run is not None
    label = labels.get(node.run, {}).get(node.expert, f"Expert {node.expert}")
    effects = f"ablation: predicted {node.predicted:+.3f}"
    if measured is not None:
        effects += f", measured {measured:+.3f}"
    return {
        "feature": cantor(node.layer, node.expert),
        "feature_type": FEATURE,
        "layer": str(node.layer),
        "activation": node.activation,
        "clerp": f"{label} ({effects})",
        "run": node.run,
        "expert": node.expert,
        **_effects(node.predicted, measured),
    }


def _effects(predicted: float, measured: float | None) -> dict[str, float]:
    return {"predicted_effect": predicted, **({} if measured is None else {"measured_effect": measured})}


FOLDER = "features"


def export_circuit(
    session: Session,
    runs: Sequence[Run],
    circuit: Circuit,
    check: CircuitCheck | None,
    folder: Path,
    model_id: str | None = None,
) -> Path:
    """Write a circuit, and feature files for the experts of indexed runs. Returns the path of the graph. A run that the
    database does not know has no labels and no feature files. ``folder`` is new, or has other graphs, which are kept.
    ``model_id``: Neuronpedia's id of the language model."""
    labels = {}
    for run in runs:
        experts = {expert.expert for expert in circuit.experts if expert.run == run.name}
        try:
            record = find_run(session, run.name)
            # User labels take precedence over automatic ones.
            labels[run.name] = clear_labels(session, record, experts) | labels_of(session, run.name, experts)
            exported = Exported(record, find_index(session, record), Vocabulary(run.tokenizer))
        except (RunNotFoundError, NoIndexError):
            continue
        write_features(session, exported, experts, folder)
    return write_graph(attribution_graph(circuit, labels, check, model_id or LOCAL_SCAN), folder)


def write_features(session: Session, exported: Exported, experts: Collection[int], folder: Path) -> None:
    """Write ``features/F.json``, as circuit-tracer's front end and Neuronpedia read it, for experts of one run. F
    numbers layer and expert."""
    target = folder / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    for row, examples, effects in chunk_of(session, exported, sorted(experts)).entries():
        number = cantor(exported.run.layer, row["expert"])
        described = _feature(exported.run.name, row, examples, effects)
        atomic_write(target / f"{number}.json", json.dumps({"index": number, **described}, ensure_ascii=False))


def _feature(run: str, row: Row, examples: list[Row], effects: Effects) -> Mapping[str, Any]:
    quantiles = []
    for number in sorted({one["bin"] for one in examples}):
        name = "Top activations"
        if number:
            low, high, _ = row["bins"][number - 1]
            name = f"Activations {low:.3g} to {high:.3g}"
        shown = [_example(example) for example in examples if example["bin"] == number]
        quantiles.append({"quantile_name": name, "examples": shown})
    return {
        "transcoder_id": run,
        "examples_quantiles": quantiles,
        "top_logits": [token for token, _ in effects["promoted"]],
        "bottom_logits": [token for token, _ in effects["suppressed"]],
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
