"""Attribution graphs in Anthropic's format, as Neuronpedia and circuit-tracer's front end read them.

    SLUG.json             metadata, nodes, links
    graph-metadata.json   metadata of all graphs in the folder
    features/F.json       examples of a feature; see ``feature_files``

A feature is numbered by Cantor's pairing of its layer and expert, as in circuit-tracer. The fields ``run``, ``expert``,
``influence_share``, ``direct_effect``, ``predicted_effect`` and ``measured_effect`` of a node are ours: other programs
ignore them. So are ``influence_share`` of a link, and ``mxd_circuit`` of the metadata: the figures of the whole graph,
which do not follow from the nodes in the file. Effects are changes of the target's logit, minus the mean over the
vocabulary, when the node is ablated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any

from mxd.trainer.analysis.circuits.graph import AblationEffect, Circuit, CircuitNode, ExpertAtToken
from mxd.trainer.utils.files import atomic_write

FEATURE = "cross layer transcoder"
ERROR = "mlp reconstruction error"
EMBEDDING, LOGIT = "embedding", "logit"
MLP_WITHOUT_RUN = "MLP without a run"
LOCAL_SCAN = "./data/features"
"""Place of feature files for circuit-tracer's local server: the folder ``features`` of its data folder."""
INDEX_FILE = "graph-metadata.json"


@dataclass(frozen=True)
class GraphContext:
    """Data of a graph besides the circuit."""

    labels: Mapping[str, Mapping[int, str]]
    """Labels of experts, by run and expert."""
    effects: Mapping[ExpertAtToken, AblationEffect]
    """Measured effects of ablating single experts; empty if not measured."""
    scan: str = LOCAL_SCAN
    """Neuronpedia's id of the language model, or the folder of feature files."""


def cantor(x: int, y: int) -> int:
    """Number a pair of non-negative integers."""
    return (x + y) * (x + y + 1) // 2 + y


def attribution_graph(circuit: Circuit, context: GraphContext) -> dict[str, Any]:
    """Return a circuit as a JSON object."""
    ids = node_ids(circuit)
    scores = _cumulative(circuit.nodes)
    return {
        "metadata": _metadata(circuit, context),
        "qParams": {"pinnedIds": [], "supernodes": [], "linkType": "both", "clickedId": "", "sg_pos": ""},
        "nodes": [
            {**_node(circuit, node, context), "node_id": id, "jsNodeId": id, "influence": score}
            for node, id, score in zip(circuit.nodes, ids, scores, strict=True)
        ],
        "links": [
            {
                "source": ids[edge.source],
                "target": ids[edge.target],
                "weight": edge.weight,
                "influence_share": edge.influence,
            }
            for edge in circuit.edges
        ],
    }


def node_ids(circuit: Circuit) -> list[str]:
    """Return the id of each node: layer, expert or token, and position."""
    return [_node_id(circuit, node) for node in circuit.nodes]


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


def _metadata(circuit: Circuit, context: GraphContext) -> dict[str, Any]:
    texts = [token.text for token in circuit.tokens]
    prompt = "".join(token.text for token in circuit.tokens if not token.start)
    digest = blake2b(repr((circuit.runs, texts, circuit.target.id)).encode(), digest_size=4).hexdigest()
    words = "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in prompt.lower()).split()[:6])
    return {
        "slug": f"{words or 'prompt'}-{digest}",
        "scan": context.scan,
        "transcoder_list": [],
        "prompt_tokens": texts,
        "prompt": prompt,
        "node_threshold": 1.0,
        "schema_version": 1,
        "info": {"generator": {"name": "mxd-explorer"}, "description": f"Runs: {', '.join(circuit.runs)}."},
        "mxd_circuit": _whole(circuit),
    }


def _whole(circuit: Circuit) -> dict[str, Any]:
    """Figures of the whole graph, under the names of ``Circuit``."""
    return {
        "runs": circuit.runs,
        "layers": circuit.layers,
        "logit": circuit.target.logit,
        "direct": dict(circuit.direct),
        "origins": dict(circuit.origins),
        "num_nodes": circuit.num_nodes,
        "retained_influence": circuit.retained_influence,
        "retained_edge_influence": circuit.retained_edge_influence,
        "rounding": circuit.rounding,
    }


def _node_id(circuit: Circuit, node: CircuitNode) -> str:
    match node.kind:
        case "expert":
            return f"{node.layer}_{node.expert}_{node.position}"
        case "embedding":
            return f"E_{circuit.tokens[node.position].id}_{node.position}"
        case "target":
            return f"{_last_layer(circuit)}_{circuit.target.id}_{node.position}"
        case _:
            return f"{node.layer}_{node.kind}_{node.position}"


def _last_layer(circuit: Circuit) -> int:
    """Layer of the logits: two after the last one, as in circuit-tracer."""
    return max((node.layer for node in circuit.nodes if node.layer is not None), default=0) + 2


def _node(circuit: Circuit, node: CircuitNode, context: GraphContext) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "ctx_idx": node.position,
        "influence_share": node.influence,
        "direct_effect": node.direct,
        "predicted_effect": -node.effect,
    }
    match node.kind:
        case "target":
            named = {"feature": circuit.target.id, "feature_type": LOGIT, "layer": str(_last_layer(circuit))}
            target = circuit.target
            probability = {"is_target_logit": True, "token_prob": target.probability}
            return shown | named | probability | {"clerp": f'Output "{target.text}" (p={target.probability:.3f})'}
        case "embedding":
            text = circuit.tokens[node.position].text
            return shown | {
                "feature": node.position,
                "feature_type": EMBEDDING,
                "layer": "E",
                "clerp": f'Emb: "{text}"',
            }
        case "expert":
            return shown | _expert(node, context)
        case _:
            clerp = "Reconstruction error" if node.kind == "error" else MLP_WITHOUT_RUN
            named = {"feature": -1, "feature_type": ERROR, "layer": str(node.layer)}
            return shown | named | {"clerp": f"{clerp}, layer {node.layer}", "run": node.run}


def _expert(node: CircuitNode, context: GraphContext) -> dict[str, Any]:
    assert node.layer is not None and node.expert is not None and node.run is not None
    label = context.labels.get(node.run, {}).get(node.expert, f"Expert {node.expert}")
    measured = context.effects.get(ExpertAtToken(node.run, node.position, node.expert))
    effects = f"ablation: predicted {-node.effect:+.3f}"
    if measured is not None:
        effects += f", measured {measured.measured:+.3f}"
    return {
        "feature": cantor(node.layer, node.expert),
        "feature_type": FEATURE,
        "layer": str(node.layer),
        "activation": node.coefficient,
        "clerp": f"{label} ({effects})",
        "run": node.run,
        "expert": node.expert,
        **({} if measured is None else {"measured_effect": measured.measured}),
    }


def _cumulative(nodes: Sequence[CircuitNode]) -> Iterator[float | None]:
    """Share of the influence of all nodes up to each one; None for the target, which comes first."""
    influences = [node.influence for node in nodes[1:]]
    total = sum(influences) or 1.0
    return iter([None, *(min(1.0, value / total) for value in accumulate(influences))])
