"""Predicted against measured steerability: what one unit of an expert changes on unrelated text.

    python -m scripts.steerability smollm2-l4 smollm2-l10 smollm2-l16 smollm2-l22 > steerability.json

For each run, 50 random live experts and the ten with the largest prediction are added at one unit on every token of the
unrelated texts. Measured is the KL divergence of the next-token distribution, in nats per token.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from mxd.trainer.analysis.effect_search import measure, unit_prices
from mxd.trainer.config.analysis import FindConfig
from mxd.trainer.config.steering import Edit
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run

SAMPLED, LARGEST = 50, 10


def main(names: list[str]) -> None:
    """Print predicted and measured values of each run."""
    runs = [Run.load(name, Path("data/demo")) for name in names]
    language_model = LanguageModel.load(runs[0].language_model_source, "cpu")
    predicted, draw = unit_prices(language_model, runs), random.Random(0)
    # Any wish: only the price of the edits is read.
    config = FindConfig(prompts=("Once",), wanted=(" upon",))
    found = {}
    for run in runs:
        price_N = predicted[run.name]
        experts = draw.sample((price_N > 0).nonzero()[:, 0].tolist(), SAMPLED) + price_N.topk(LARGEST).indices.tolist()
        groups = [[Edit(run=run.name, expert=expert, mode="add", strength=1.0)] for expert in experts]
        measured = [effect.price for effect in measure(language_model, runs, config, groups).effects]
        found[run.name] = {"experts": experts, "predicted": price_N[experts].tolist(), "measured": measured}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
