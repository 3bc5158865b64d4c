"""How far circuits can be believed: predicted against measured effects of switching experts off, over many prompts.

    python scripts/circuit_agreement.py RUN… --text data/demo/text.jsonl.gz [--prompts 50] [--tokens 32] [--data data]

Each prompt is the beginning of a document; its most probable next token is traced, and every expert that the graph
keeps is switched off by itself. Prints one JSON document: over all experts of all prompts, over those of each layer,
and how much influence the kept nodes hold.
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

from trainer.circuits.agreement import agreement, check
from trainer.circuits.config import CircuitConfig
from trainer.circuits.effects import Effect
from trainer.circuits.graph import Circuit
from trainer.circuits.tracing import trace
from trainer.config import TextConfig
from trainer.documents import documents
from trainer.language_model import LanguageModel
from trainer.run import Run

Found = list[tuple[Circuit, tuple[Effect, ...]]]


def main() -> None:
    """Measure, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--text", required=True)
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--data", type=Path, default=Path("data"))
    words = parser.parse_args()
    runs = [Run.load(name, words.data) for name in words.runs]
    language_model = LanguageModel.load(runs[0].language_model_source, "cpu")
    found: Found = []
    for prompt in prompts(language_model, words.text, words.prompts, words.tokens):
        config = CircuitConfig(prompt=prompt, nodes=words.nodes)
        circuit = trace(language_model, runs, config)
        found.append((circuit, check(language_model, runs, config, circuit)))
        print(f"{len(found)} of {words.prompts}", file=sys.stderr)
    print(json.dumps(summary(found), indent=1))


def prompts(language_model: LanguageModel, text: str, count: int, tokens: int) -> list[str]:
    """Beginnings of documents that are long enough, evenly spread over the text."""
    tokenizer, beginnings = language_model.tokenizer, []
    for document in documents(TextConfig(text=text)):
        ids = tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) > tokens:
            beginnings.append(tokenizer.decode(ids[:tokens]))
    step = max(1, len(beginnings) // count)
    return list(islice(beginnings[::step], count))


def summary(found: Found) -> dict[str, object]:
    """Figures over all prompts."""
    layers: defaultdict[int, list[Effect]] = defaultdict(list)
    for circuit, effects in found:
        experts = [node for node in circuit.nodes if node.kind == "expert"]
        for node, effect in zip(experts, effects, strict=True):
            layers[node.layer or 0].append(effect)
    within = [agreement(effects).correlation for _, effects in found if len(effects) > 2]
    kinds = {kind for circuit, _ in found for kind in circuit.begins}
    return {
        "prompts": len(found),
        "all": asdict(agreement(effect for _, effects in found for effect in effects)),
        "layers": {layer: asdict(agreement(effects)) for layer, effects in sorted(layers.items())},
        "median correlation within a prompt": median(within),
        "least correlation within a prompt": min(within),
        "kept nodes": fmean(len(circuit.nodes) - 1 for circuit, _ in found),
        "nodes": fmean(circuit.num_nodes for circuit, _ in found),
        "kept influence": fmean(circuit.kept_influence for circuit, _ in found),
        "kept edges": fmean(circuit.kept_edges for circuit, _ in found),
        "begins": {kind: fmean(circuit.begins.get(kind, 0.0) for circuit, _ in found) for kind in sorted(kinds)},
        "largest rounding": max(abs(circuit.rounding) for circuit, _ in found),
    }


if __name__ == "__main__":
    main()
