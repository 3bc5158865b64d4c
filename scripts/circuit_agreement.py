"""Compare predicted and measured ablation effects of circuits over many prompts.

    python scripts/circuit_agreement.py RUN… --dataset data/demo/text.jsonl.gz [--prompts 50] [--tokens 32]

Each prompt is the beginning of a document. Its most probable next token is traced, and every expert in the graph is
ablated on its own. Prints one JSON document: correlations over all experts, per layer, and the influence of the kept
nodes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from statistics import fmean, median

from mxd.trainer.analysis.circuits.agreement import ablate_each_expert, agreement
from mxd.trainer.analysis.circuits.graph import AblationEffect, Circuit
from mxd.trainer.analysis.circuits.tracing import trace
from mxd.trainer.config import TextConfig
from mxd.trainer.config.analysis import CircuitConfig
from mxd.trainer.data.documents import documents
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run

Found = list[tuple[Circuit, tuple[AblationEffect, ...]]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--data", type=Path, default=Path("data"))
    words = parser.parse_args()
    runs = [Run.load(name, words.data) for name in words.runs]
    language_model = LanguageModel.load(runs[0].language_model_source, "cpu")
    agreements: Found = []
    for prompt in prompts(language_model, words.dataset, words.prompts, words.tokens):
        config = CircuitConfig(prompt=prompt, nodes=words.nodes)
        circuit = trace(language_model, runs, config)
        agreements.append((circuit, ablate_each_expert(language_model, runs, config, circuit)))
        print(f"{len(agreements)} of {words.prompts}", file=sys.stderr)
    print(json.dumps(summary(agreements), indent=1))


def prompts(language_model: LanguageModel, text: str, count: int, tokens: int) -> list[str]:
    """Beginnings of documents that are long enough, evenly spaced over the text."""
    tokenizer, beginnings = language_model.tokenizer, []
    for document in documents(TextConfig(dataset=text)):
        ids = tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) > tokens:
            beginnings.append(tokenizer.decode(ids[:tokens]))
    step = max(1, len(beginnings) // count)
    return list(islice(beginnings[::step], count))


def summary(agreements: Found) -> dict[str, object]:
    """Summarise all prompts."""
    layers: defaultdict[int, list[AblationEffect]] = defaultdict(list)
    for circuit, effects in agreements:
        experts = [node for node in circuit.nodes if node.kind == "expert"]
        for node, effect in zip(experts, effects, strict=True):
            layers[node.layer or 0].append(effect)
    correlations = [agreement(effects).correlation for _, effects in agreements]
    within = [correlation for correlation in correlations if correlation is not None]
    kinds = {kind for circuit, _ in agreements for kind in circuit.origins}
    return {
        "prompts": len(agreements),
        "all": asdict(agreement(effect for _, effects in agreements for effect in effects)),
        "layers": {layer: asdict(agreement(effects)) for layer, effects in sorted(layers.items())},
        "median correlation within a prompt": median(within),
        "least correlation within a prompt": min(within),
        "kept nodes": fmean(len(circuit.nodes) - 1 for circuit, _ in agreements),
        "nodes": fmean(circuit.num_nodes for circuit, _ in agreements),
        "kept influence": fmean(circuit.retained_influence for circuit, _ in agreements),
        "kept edges": fmean(circuit.retained_edge_influence for circuit, _ in agreements),
        "origins": {kind: fmean(circuit.origins.get(kind, 0.0) for circuit, _ in agreements) for kind in sorted(kinds)},
        "largest rounding": max(abs(circuit.rounding) for circuit, _ in agreements),
    }


if __name__ == "__main__":
    main()
