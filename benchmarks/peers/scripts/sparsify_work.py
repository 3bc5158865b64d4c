"""sparsify: training of a transcoder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from datasets import Dataset
from safetensors.torch import save_file
from sparsify import SparseCoderConfig, TrainConfig, Trainer
from transformers import AutoModelForCausalLM

from benchmarks.peers.scripts.protocol import serve

torch.set_num_threads(int(os.environ["THREADS"]))
folder = Path(sys.argv[1])
work = torch.load(folder / "work.pt", weights_only=True)
model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
dataset = Dataset.from_dict({"input_ids": work["train"].tolist()}).with_format("torch")


def transcoder() -> str:
    """Train with the default settings, except sizes. Returns the file with the weights."""
    hookpoint = f"layers.{work['layer']}.mlp"
    config = TrainConfig(
        SparseCoderConfig(num_latents=work["train_experts"], k=work["train_k"], transcode=True),
        batch_size=work["batch_tokens"] // work["train"].shape[1],
        hookpoints=[hookpoint],
        log_to_wandb=False,
        save_dir=str(folder / "sparsify"),
    )
    trainer = Trainer(config, dataset, model)
    trainer.fit()
    layer = trainer.saes[hookpoint]
    weights = {"W_enc": layer.encoder.weight, "b_enc": layer.encoder.bias, "W_dec": layer.W_dec, "b_dec": layer.b_dec}
    save_file({name: value.detach().contiguous() for name, value in weights.items()}, "sparsify.safetensors")
    return str(folder / "sparsify.safetensors")


serve({"transcoder": transcoder}, ("eai-sparsify", "transformers"))
