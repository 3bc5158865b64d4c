"""Measure CPU time and peak memory of tracing one prompt at a given length.

    python scripts/circuit_lengths.py RUN… --dataset data/demo/held_out.jsonl.gz --tokens 2048

The prompt is a sequence of documents. Peak memory is that of the process, with the language model and the runs. Prints
one JSON document. Use a new process for each length.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from time import perf_counter, process_time

from mxd.trainer.analysis.circuits.tracing import max_traced, trace
from mxd.trainer.config import TextConfig
from mxd.trainer.config.analysis import CircuitConfig
from mxd.trainer.data.documents import documents
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--tokens", type=int, required=True, help="tokens with the start token")
    parser.add_argument("--max-traced", type=int)
    parser.add_argument("--data", type=Path, default=Path("data"))
    words = parser.parse_args()
    runs = [Run.load(name, words.data) for name in words.runs]
    language_model = LanguageModel.load(runs[0].language_model_source, "cpu")
    text = ""
    for document in documents(TextConfig(dataset=words.dataset)):
        text += f"{document}\n\n"
        if len(language_model.tokenizer(text, verbose=False)["input_ids"]) > words.tokens:
            break
    config = CircuitConfig(prompt=text, position=words.tokens - 1, max_traced=words.max_traced)
    for run in runs:
        run.layer.eval()  # loaded before the clock starts
    wall, cpu = perf_counter(), process_time()
    circuit = trace(language_model, runs, config)
    unit = 2**30 if sys.platform == "darwin" else 2**20
    measured = {
        "tokens": words.tokens,
        "traced": max_traced(config, words.tokens),
        "cpu_s": process_time() - cpu,
        "wall_s": perf_counter() - wall,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit,
        "nodes": circuit.num_nodes,
        "kept_influence": circuit.retained_influence,
        "json_bytes": len(json.dumps(asdict(circuit))),
    }
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
