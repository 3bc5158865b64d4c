"""Find experts that promote related tokens: python scripts/promoted_tokens.py RUN promoted.json --data data/demo

For every expert of a run, adds its contribution at a strength of 4 to the residual stream behind the last block, after
a few openings, and unembeds it. This is the direct path only, so it says most about late layers. Writes the tokens
whose log-probability rises most on average, the strongest experts first. Judge an expert on generated texts.

Shapes: E experts, P openings, I input width, O output width, V vocabulary size.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import prompt_ids
from mxd.trainer.layers.base import Routing
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.files import atomic_write

OPENINGS = (
    "One day, the little girl went to the",
    "The best way to learn is",
    "He opened the door and",
    "I think that",
)
STRENGTH = 4.0
EXPERTS_AT_ONCE = 32
NUM_TOKENS = 10


@torch.inference_mode()
def promoted_tokens(run: Run, language_model: LanguageModel) -> Iterator[dict[str, object]]:
    """Yield each expert that is not dead with its promoted tokens and their mean gain in log-probability, in nats."""
    layer = run.layer
    x_PI, residual_PO = last_token(run, language_model)
    dense_PO = layer.dense_output(x_PI)
    baseline_PV = language_model.unembed(residual_PO).log_softmax(dim=-1)
    for experts_E in torch.tensor(sorted(run.units)).split(EXPERTS_AT_ONCE):
        units_E = torch.tensor([run.units[expert] for expert in experts_E.tolist()])
        columns = (values.repeat_interleave(len(OPENINGS))[:, None] for values in (STRENGTH * units_E, experts_E))
        added = layer.contribution(dense_PO.repeat(len(experts_E), 1), Routing(*columns))
        logits = language_model.unembed(residual_PO.repeat(len(experts_E), 1) + added)
        gains_EPV = logits.log_softmax(dim=-1).unflatten(0, (-1, len(OPENINGS))) - baseline_PV
        values, tokens = gains_EPV.mean(dim=1).topk(NUM_TOKENS)
        for expert, gain, ids in zip(experts_E.tolist(), values.mean(dim=1).tolist(), tokens.tolist(), strict=True):
            texts = [language_model.tokenizer.decode([token]) for token in ids]
            yield {"expert": expert, "mean_gain": gain, "tokens": texts}


def last_token(run: Run, language_model: LanguageModel) -> tuple[Tensor, Tensor]:
    """Input of the run's MLP and final residual stream on the last token of each opening, [P, I] and [P, O]."""
    inputs, residuals = [], []
    for opening in OPENINGS:
        ids_1T = torch.tensor([prompt_ids(language_model, opening, start_token=run.config.text.start_token)])
        inputs.append(language_model.mlp_inputs([run.config.layer], ids_1T)[run.config.layer].float()[-1])
        residuals.append(language_model.residual(ids_1T)[0, -1].float())
    return torch.stack(inputs), torch.stack(residuals)


def main() -> None:
    """Write the promoted tokens of every expert."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, default=Path("data"))
    given = parser.parse_args()
    run = Run.load(given.run, given.data)
    language_model = LanguageModel.load(run.language_model_source, "cpu", torch.float32)
    rows = sorted(promoted_tokens(run, language_model), key=lambda row: row["mean_gain"], reverse=True)  # type: ignore[arg-type,return-value]
    atomic_write(given.out, json.dumps(rows, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
