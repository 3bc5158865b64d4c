"""Inputs that all participants share, in one folder.

model/          the language model and its tokenizer, as transformers loads them
work.pt         sizes, token ids, a steering vector and the gate's weights
text.jsonl      text to train on, for us; its token ids are in work.pt

Shapes: T tokens, S sequences, C tokens per sequence, K active experts, N experts.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.trainer.generate import PROMPT, routed_text
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.run import Run

CONTEXT = 128
HELD_OUT_SEQUENCES = 64
PAIRS = 8
"""Number of steering pairs of the work ``pairs``."""


@dataclass(frozen=True)
class WorkSizes:
    """Sizes of the compared work."""

    tokens: int = 64
    """Tokens that each variant of a steering pair generates."""
    train_tokens: int = 102_400
    batch_tokens: int = 2048
    num_experts: int = 4096
    """Number of experts N of the trained layers."""
    k: int = 32
    """Number of active experts K of the trained layers."""


def write_inputs(folder: Path, language_model: LanguageModel, run: Run, text: Path, sizes: WorkSizes) -> MlpActivations:
    """Write the folder. Returns held-out activations of the layer, from the sequences after those to train on."""
    language_model.module.save_pretrained(folder / "model")
    language_model.tokenizer.save_pretrained(folder / "model")
    count = -(-sizes.train_tokens // CONTEXT)
    ids_SC = _sequences(language_model, text, count + HELD_OUT_SEQUENCES, folder / "text.jsonl")
    routed = routed_text(language_model)
    text_1T = torch.tensor([prompt_ids(language_model, routed)])
    gate, layer = run.layer.state_dict(), run.config.layer
    scores_TN = language_model.capture(layer, text_1T).input_TI @ gate["gate.weight"].T + gate["gate.bias"]
    vector_O = torch.randn(language_model.architecture.mlp_shape(layer).output_width)
    work: dict[str, Any] = {
        "layer": layer,
        "k": run.config.k,
        "gate_weight": gate["gate.weight"],
        "gate_bias": gate["gate.bias"],
        "chosen": scores_TN.topk(run.config.k).indices,
        "vector": vector_O,
        "prompt": torch.tensor([prompt_ids(language_model, PROMPT)]),
        "text": text_1T,
        "pairs": PAIRS,
        "train": ids_SC[:count],
        "tokens": sizes.tokens,
        "train_tokens": count * CONTEXT,
        "batch_tokens": sizes.batch_tokens,
        "train_experts": sizes.num_experts,
        "train_k": sizes.k,
    }
    held_out = language_model.capture(layer, ids_SC[count:])
    work["held_out"] = held_out.input_TI
    torch.save(work, folder / "work.pt")
    ours = {"run": str(run.folder), "text": str(folder / "text.jsonl"), "routed": routed}
    (folder / "ours.json").write_text(json.dumps(ours))
    return held_out


def _sequences(language_model: LanguageModel, text: Path, count: int, written: Path) -> Tensor:
    """Token ids [S, C] of the first documents of a text. Those to train on are also written as text."""
    ids: list[int] = []
    needed, to_train = count * CONTEXT, (count - HELD_OUT_SEQUENCES) * CONTEXT
    with gzip.open(text, "rt") as source, written.open("w") as target:
        for line in source:
            if len(ids) >= needed:
                break
            if len(ids) < to_train:
                target.write(line)
            document = json.loads(line)["text"]
            ids += language_model.tokenizer(document, verbose=False)["input_ids"]
    repeated = ids * -(-needed // len(ids))
    return torch.tensor(repeated[:needed]).reshape(count, CONTEXT)
