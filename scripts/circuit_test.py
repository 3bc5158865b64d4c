"""Pre-registered test of circuits: predicted against measured effects on prompts that were written for it.

    python scripts/circuit_test.py RUN… --output circuits-test.jsonl [--experts all]

Traces and checks every prompt of results/raw/circuits/prompts.json, cut to 8, 24 or 64 tokens. ``--experts all``
ablates every active expert of each of the first ten prompts instead. Writes one line per prompt, and continues a file
that exists. ``results/circuit_tables.py`` summarises it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from mxd.trainer.analysis.circuits.checking import Measuring, Row, check
from mxd.trainer.analysis.circuits.tracing import active_experts, read_circuit, trace
from mxd.trainer.analysis.effects import differentiable_forward, layers_of
from mxd.trainer.config.analysis import CircuitConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run

PROMPTS = Path(__file__).resolve().parents[1] / "results" / "raw" / "circuits" / "prompts.json"
FIRST = 10
"""Number of prompts of which every active expert is ablated."""
TOKENS = {"short": 8, "medium": 24, "long": 64}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--experts", choices=("shown", "all"), default="shown")
    parser.add_argument("--data", type=Path, default=Path("data/demo"))
    words = parser.parse_args()
    runs = [Run.load(name, words.data) for name in words.runs]
    language_model = LanguageModel.load(runs[0].language_model_source, "cpu")
    done = len(words.output.read_text("utf-8").splitlines()) if words.output.exists() else 0
    texts = list(prompts(language_model))
    measure = {"shown": checked_circuit, "all": every_expert}[words.experts]
    chosen = texts[:FIRST] if words.experts == "all" else texts
    for number, (length, text) in islice(enumerate(chosen), done, None):
        config = CircuitConfig(prompt=text)
        measured = measure(language_model, runs, config)
        with words.output.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"length": length, "prompt": text, **measured}) + "\n")
        print(f"{number + 1} of {len(chosen)}", file=sys.stderr, flush=True)


def prompts(language_model: LanguageModel) -> Iterator[tuple[str, str]]:
    """Length and text of each prompt, the short ones first."""
    tokenizer = language_model.tokenizer
    for length, texts in json.loads(PROMPTS.read_text("utf-8")).items():
        for text in texts:
            ids = tokenizer(text, add_special_tokens=False)["input_ids"][: TOKENS[length]]
            yield length, str(tokenizer.decode(ids))


def checked_circuit(language_model: LanguageModel, runs: list[Run], config: CircuitConfig) -> dict[str, Any]:
    """A circuit with all of its measured changes."""
    circuit = trace(language_model, runs, config)
    result = check(language_model, runs, config, circuit)
    nodes, edges = circuit.nodes, zip(circuit.edges, result.edges, result.left_top_k, strict=True)
    return {
        "target": circuit.label,
        "value": circuit.value,
        "active": circuit.active,
        "retained": circuit.retained,
        "node_columns": ["layer", "position", "expert", "activation", "method", "predicted", "measured"],
        "nodes": [
            [node.layer, node.position, node.expert, node.activation, node.method, node.predicted, measured]
            for node, measured in zip(nodes[1:], result.measured[1:], strict=True)
        ],
        "edge_columns": ["source", "target", "leaves_top_k", "left_top_k", "predicted", "measured", "activation"],
        "edges": [
            [edge.source, edge.target, edge.leaves_top_k, left, edge.predicted, measured, nodes[edge.target].activation]
            for edge, measured, left in edges
            if edge.target
        ],
        "joint": asdict(result.joint),
        "sufficiency": asdict(result.sufficiency),
        "scores": asdict(result.scores),
    }


def every_expert(language_model: LanguageModel, runs: list[Run], config: CircuitConfig) -> dict[str, Any]:
    """Predicted and measured change of every active expert of a prompt, and the experts that its circuit shows."""
    circuit = trace(language_model, runs, config)
    layers = layers_of(language_model, runs)
    reading = read_circuit(language_model, runs, config)
    measuring = Measuring(reading, layers, config.errors)
    places = sorted(measuring.active)
    values = measuring.run([Row(), *(Row(frozenset([place])) for place in places)])[:, 0]
    forward = differentiable_forward(reading, layers)
    experts = active_experts(forward, reading.with_token(forward).value(forward))
    predicted = {(it.layer, it.position, it.expert): it.predicted for it in experts}
    changes = (values[1:] - values[0]).tolist()
    return {
        "shown": [[node.layer, node.position, node.expert] for node in circuit.nodes[1:]],
        "columns": ["layer", "position", "expert", "predicted", "measured"],
        "experts": [
            [*place, round(predicted[place], 6), round(change, 6)]
            for place, change in zip(places, changes, strict=True)
        ],
    }


if __name__ == "__main__":
    main()
