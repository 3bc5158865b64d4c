"""What a routing share below 1 is worth: loss and share of layers that answer together with the MLP they stand for.

    python scripts/partial_replacement.py RUN… --text HELD_OUT [--tokens 25600] [--parts 1,0.8,0.6,0.4] [--data data]

The answer is (1 - p) of the MLP's output and p of the layer's. Whatever the layer is, p dials both figures: the added
loss falls about as p², and so does the routing share. So a layer with a small share is ahead of another one only if it
is ahead of that other one at the same share. Prints one JSON document, a row a run and part.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from trainer.config import EvaluateConfig, TextConfig
from trainer.evaluation.arms import ORIGINAL, Answer, LayerArms, arm_of, constant_in, paired
from trainer.evaluation.evaluate import Session
from trainer.evaluation.statistics import gather
from trainer.language_model import LanguageModel
from trainer.run import Run


def main(given: list[str] | None = None) -> None:
    """Measure, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokens", type=int, default=25_600)
    parser.add_argument("--parts", default="1,0.8,0.6,0.4")
    parser.add_argument("--data", type=Path, default=Path("data"))
    words = parser.parse_args(given)
    runs = [Run.load(name, words.data) for name in words.runs]
    language_model = LanguageModel.load(runs[0].language_model_source, "cpu")
    config = EvaluateConfig(text=TextConfig(text=words.text), tokens=words.tokens)
    session = Session.open(config, language_model, lambda *_: None, lambda: False)
    rows = []
    for run in runs:
        rows += measured(session, run, [float(part) for part in words.parts.split(",")])
        print(f"{run.name} is measured", file=sys.stderr)
    print(json.dumps(rows, indent=1))


def measured(session: Session, run: Run, parts: list[float]) -> list[dict[str, object]]:
    """Added loss in nats and routing share, each with its 95 % interval, of every part of a run."""
    layer, layers = run.layer, run.config.layers
    found = gather(session.language_model, layers, layer, session.ids_SL, session.progress)
    own = LayerArms(layer, found, ())
    arms = [ORIGINAL, constant_in(run, found.output_O)]
    for part in parts:
        arms += [arm_of(run, beside_the_mlp(answer, part)) for answer in (own.replaced, own.frozen)]
    losses = session.losses(arms)
    mean_S = paired(losses, 1)
    rows: list[dict[str, object]] = []
    for number, part in enumerate(parts):
        added_S, frozen_S = paired(losses, 2 + 2 * number), paired(losses, 3 + 2 * number)
        added, share = session.bootstrap.mean(added_S), session.bootstrap.ratio(frozen_S, mean_S)
        rows.append({"run": run.name, "part": part, "delta_ce": asdict(added), "routing_share": asdict(share)})
    return rows


def beside_the_mlp(answer: Answer, part: float) -> Answer:
    """So much of an answer, and the rest of what the MLP says itself."""

    def together(x_TI: Tensor, output_TO: Tensor) -> Tensor:
        return (1 - part) * output_TO + part * answer(x_TI, output_TO)

    return together


if __name__ == "__main__":
    main()
