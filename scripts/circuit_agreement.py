"""Compare predicted and measured ablation effects of circuits over many prompts.

    python scripts/circuit_agreement.py RUN… --dataset data/demo/held_out.jsonl.gz --output pairs.jsonl [--prompts 100]

Each prompt is the beginning of a document. Its most probable next token is traced, and every expert in the graph is
ablated on its own. Writes one line per prompt, and continues a file that exists. ``results/tables.py`` summarises it.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from mxd.trainer.analysis.circuits.agreement import ablate_each_expert
from mxd.trainer.analysis.circuits.tracing import trace
from mxd.trainer.config import TextConfig
from mxd.trainer.config.analysis import CircuitConfig
from mxd.trainer.data.documents import documents
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--errors", choices=("kept", "dropped"), default="kept")
    parser.add_argument("--data", type=Path, default=Path("data"))
    words = parser.parse_args()
    runs = [Run.load(name, words.data) for name in words.runs]
    language_model = LanguageModel.load(runs[0].language_model_source, "cpu")
    done = len(words.output.read_text("utf-8").splitlines()) if words.output.exists() else 0
    texts = prompts(language_model, words.dataset, words.prompts, words.tokens)
    for number, text in islice(enumerate(texts), done, None):
        config = CircuitConfig(prompt=text, nodes=words.nodes, errors=words.errors)
        line = json.dumps(compare(language_model, runs, config))
        with words.output.open("a", encoding="utf-8") as lines:
            lines.write(line + "\n")
        print(f"{number + 1} of {len(texts)}", file=sys.stderr)


def prompts(language_model: LanguageModel, text: str, count: int, tokens: int) -> list[str]:
    """Beginnings of documents that are long enough, evenly spaced over the text."""
    tokenizer = language_model.tokenizer
    beginnings: list[str] = []
    for document in documents(TextConfig(dataset=text)):
        ids = tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) > tokens:
            beginnings.append(str(tokenizer.decode(ids[:tokens])))
    step = max(1, len(beginnings) // count)
    return list(islice(beginnings[::step], count))


def compare(language_model: LanguageModel, runs: list[Run], config: CircuitConfig) -> dict[str, Any]:
    """Effects of every expert of a prompt's graph, and what the graph keeps."""
    circuit = trace(language_model, runs, config)
    effects = ablate_each_expert(language_model, runs, config, circuit)
    experts = [node for node in circuit.nodes if node.kind == "expert"]
    return {
        "kept_nodes": len(circuit.nodes) - 1,
        "nodes": circuit.num_nodes,
        "influence": circuit.retained_influence,
        "rounding": circuit.rounding,
        "origins": dict(circuit.origins),
        "columns": ["layer", "position", "expert", "influence", "direct", "predicted", "measured"],
        "experts": [
            [node.layer, node.position, node.expert, node.influence, node.direct, effect.predicted, effect.measured]
            for node, effect in zip(experts, effects, strict=True)
        ],
    }


if __name__ == "__main__":
    main()
