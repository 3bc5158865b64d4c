"""delphi: activations of every latent, written to disk. Contexts, statistics and labels would be further steps."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch
from delphi.latents import LatentCache
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

from benchmarks.peers.scripts.protocol import serve

BATCH_SIZE, SPLITS = 32, 5
"""As by default in its own program."""

torch.set_num_threads(int(os.environ["THREADS"]))
folder = Path(sys.argv[1])
work = torch.load(folder / "work.pt", weights_only=True)
model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
hookpoint = f"model.layers.{work['layer']}.mlp"


def encode(inputs: torch.Tensor) -> torch.Tensor:
    """Dense activations with K active latents per token, as delphi's own encoders return them."""
    top = F.linear(inputs, work["gate_weight"], work["gate_bias"]).relu().topk(int(work["k"]))
    dense = torch.zeros(*inputs.shape[:-1], len(work["gate_bias"]))
    return dense.scatter_(-1, top.indices, top.values)


def index() -> float:
    """Cache all activations and write them. Returns the active latents per token."""
    cache = LatentCache(model, {hookpoint: encode}, BATCH_SIZE, transcode=True)
    cache.run(work["train_tokens"], work["train"])
    with tempfile.TemporaryDirectory() as name:
        cache.save_splits(SPLITS, Path(name))
    return len(cache.cache.latent_activations[hookpoint]) / int(work["train_tokens"])


serve({"index": index}, ("eai-delphi",))
