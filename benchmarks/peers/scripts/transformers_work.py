"""Plain transformers with a hook: a pair as two rows of one ``generate``, and routing by a product and a top-k."""

from __future__ import annotations

import os
import sys
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


def pair() -> int:
    """Generate both rows; add the vector to the MLP's output of the second."""
    torch.manual_seed(0)
    ids, tokens = work["prompt"].repeat(2, 1), int(work["tokens"])

    def steer(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
        output[1] += work["vector"]

    handle = mlp.register_forward_hook(steer)
    settings = {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "min_new_tokens": tokens, "pad_token_id": 0}
    output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, **settings)
    handle.remove()
    return int(output.shape[1] - ids.shape[1])


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


serve({"pair": pair, "routing": routing}, ("transformers", "torch"))
