"""Plain transformers with a hook: texts as rows of one ``generate``, and routing by a product and a top-k."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.peers.scripts.protocol import serve

torch.set_num_threads(int(os.environ["THREADS"]))
torch.set_grad_enabled(False)
folder = Path(sys.argv[1])
work = torch.load(folder / "work.pt", weights_only=True)
model: Any = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
mlp = model.model.layers[work["layer"]].mlp


class Stop(Exception):
    """Ends a forward pass at the layer."""


def generate(rows: int, steered: slice) -> int:
    """Generate rows of one batch; add the vector to the MLP's output of those that are steered."""
    torch.manual_seed(0)
    ids, tokens = work["prompt"].repeat(rows, 1), int(work["tokens"])

    def steer(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
        output[steered] += work["vector"]

    handle = mlp.register_forward_hook(steer)
    settings = {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "min_new_tokens": tokens, "pad_token_id": 0}
    output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, **settings)
    handle.remove()
    return int(output.shape[1] - ids.shape[1]) * rows


def routing() -> float:
    """Choose the experts of each token. Returns the share of experts that the gate itself chooses."""
    chosen: list[torch.Tensor] = []

    def choose(_module: Any, inputs: Any) -> None:
        scores = torch.nn.functional.linear(inputs[0][0], work["gate_weight"], work["gate_bias"])
        chosen.append(scores.relu().topk(int(work["k"])).indices)
        raise Stop

    handle = mlp.register_forward_pre_hook(choose)
    try:
        model(work["text"])
    except Stop:
        handle.remove()
    same = (chosen[0][:, :, None] == work["chosen"][:, None, :]).any(dim=1)
    return float(same.float().mean())


def pairs() -> int:
    """Eight pairs as rows of one batch; every second row is steered."""
    return generate(2 * work["pairs"], slice(1, None, 2))


def pair() -> int:
    """A pair as two rows; the second is steered."""
    return generate(2, slice(1, 2))


works: dict[str, Callable[[], object]] = {"pair": pair, "pair-texts": pair, "pairs": pairs, "pairs-texts": pairs}
works |= {"text": lambda: generate(1, slice(0, 1)), "routing": routing}
serve(works, ("transformers", "torch"))
