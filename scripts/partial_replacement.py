"""Measure loss increase and routing share of layers that replace only a part p of their MLP.

    python scripts/partial_replacement.py RUN… --dataset HELD_OUT [--tokens 25600] [--parts 1,0.8,0.6,0.4] [--data data]

The output is (1 - p) of the MLP's output plus p of the layer's. For any layer, loss increase and routing share fall
roughly with p². A layer with a small share is better than another only if it is better at the same share. Prints one
JSON document with a row per run and part.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from mxd.trainer.config.analysis import EvaluateConfig
from mxd.trainer.config.training import TextConfig
from mxd.trainer.evaluation.evaluate import (
    ORIGINAL,
    Evaluator,
    Intervention,
    OutputFunction,
    constant_output,
    layer_outputs,
    measure_losses,
)
from mxd.trainer.evaluation.metrics import collect_statistics
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS


def main(given: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--tokens", type=int, default=25_600)
    parser.add_argument("--parts", default="1,0.8,0.6,0.4")
    parser.add_argument("--data", type=Path, default=Path("data"))
    words = parser.parse_args(given)
    runs = [Run.load(name, words.data) for name in words.runs]
    language_model = LanguageModel.load(runs[0].language_model_source, "cpu")
    config = EvaluateConfig(text=TextConfig(dataset=words.dataset), tokens=words.tokens)
    evaluator = Evaluator.open(config, language_model, NO_CALLBACKS)
    rows = []
    for run in runs:
        rows += measured(evaluator, run, [float(part) for part in words.parts.split(",")])
        print(f"{run.name} is measured", file=sys.stderr)
    print(json.dumps(rows, indent=1))


def measured(evaluator: Evaluator, run: Run, parts: list[float]) -> list[dict[str, object]]:
    """Loss increase in nats and routing share of every part of a run, with 95 % intervals."""
    layer, sparse_layer, bootstrap = run.config.layer, run.layer, evaluator.bootstrap
    statistics = collect_statistics(evaluator, layer, sparse_layer)
    functions = layer_outputs(sparse_layer, statistics)
    interventions: list[Intervention] = [ORIGINAL, {layer: constant_output(statistics.output_O)}]
    for part in parts:
        interventions += [{layer: mixed_with_mlp(functions[name], part)} for name in ("replaced", "frozen")]
    losses = measure_losses(evaluator, interventions)
    mean_S = losses.increase(1)
    rows: list[dict[str, object]] = []
    for number, part in enumerate(parts):
        replaced_S, frozen_S = losses.increase(2 + 2 * number), losses.increase(3 + 2 * number)
        increase, share = bootstrap.mean(replaced_S), bootstrap.ratio(frozen_S, mean_S)
        rows.append({"run": run.name, "part": part, "loss_increase": asdict(increase), "routing_share": asdict(share)})
    return rows


def mixed_with_mlp(function: OutputFunction, part: float) -> OutputFunction:
    """Mix a part of the intervention's output with the MLP's own output."""

    def mixed(x_TI: Tensor, output_TO: Tensor) -> Tensor:
        return (1 - part) * output_TO + part * function(x_TI, output_TO)

    return mixed


if __name__ == "__main__":
    main()
