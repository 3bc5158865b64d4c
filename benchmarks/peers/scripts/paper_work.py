"""The paper's code: training of an MxD by its own loop, on the activations of plain transformers.

PAPER_CODE is a copy of its repository. Its activation store needs a dataset from a hub, so it is replaced by ``Store``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from benchmarks.peers.scripts.protocol import serve

sys.path.insert(0, str(Path(os.environ["PAPER_CODE"], "transcoders")))
from sae_training.config import LanguageModelSAERunnerConfig  # type: ignore[import-not-found]
from sae_training.sparse_autoencoder import SparseAutoencoder  # type: ignore[import-not-found]
from sae_training.train_sae_on_language_model import (  # type: ignore[import-not-found]
    train_sae_on_language_model,
)

torch.set_num_threads(int(os.environ["THREADS"]))
folder = Path(sys.argv[1])
work = torch.load(folder / "work.pt", weights_only=True)
model: Any = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
mlp = model.model.layers[work["layer"]].mlp


class Stop(Exception):
    """Ends a forward pass at the layer."""


@dataclass
class Store:
    """Batches of the MLP's inputs and outputs."""

    cfg: Any
    batches: Iterator[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        sequences = work["batch_tokens"] // work["train"].shape[1]
        self.batches = map(_activations, work["train"].split(sequences))

    def next_batch(self) -> Tensor:
        """Inputs and outputs side by side [T, I + O]."""
        return next(self.batches)


@torch.no_grad()
def _activations(ids_SC: Tensor) -> Tensor:
    found: list[Tensor] = []

    def keep(_module: Any, inputs: Any, output: Tensor) -> None:
        found.append(torch.cat([inputs[0], output], dim=-1).flatten(0, 1))
        raise Stop

    handle = mlp.register_forward_hook(keep)
    try:
        model(ids_SC, use_cache=False)
    except Stop:
        handle.remove()
    return found[0]


def train_mxd() -> Callable[[], str]:
    """Train with the settings of its scripts, except sizes. Afterwards compute its outputs on held-out tokens."""
    width = work["held_out"].shape[1]
    config = LanguageModelSAERunnerConfig(
        d_in=width,
        d_out=width,
        expansion_factor=mlp.gate_proj.out_features / width,
        is_transcoder=True,
        use_conditional=True,
        n_experts=work["train_experts"],
        topk=work["train_k"],
        mlp_activation_fn="gelu",
        norm_dec=False,
        lr=4e-4,
        # Its warm-up of 5,000 steps is longer than this training.
        lr_scheduler_name="constant",
        b_dec_init_method="zeros",
        use_ghost_grads=False,
        feature_sampling_method=None,
        train_batch_size=work["batch_tokens"],
        total_training_tokens=work["train_tokens"],
        log_to_wandb=False,
        use_tqdm=False,
        checkpoint_path=str(folder / "paper"),
    )
    settings: dict[str, Any] = {"batch_size": work["batch_tokens"], "feature_sampling_method": None}
    # It saves statistics of a complete window at the end.
    settings["feature_sampling_window"] = work["train_tokens"] // work["batch_tokens"]
    layer = train_sae_on_language_model(model, SparseAutoencoder(config), Store(config), **settings)

    def outputs() -> str:
        path = folder / "paper-mxd.safetensors"
        with torch.no_grad():
            layer.eval()
            save_file({"output": layer(work["held_out"])[0].contiguous()}, path)
        return str(path)

    return outputs


serve({"mxd": train_mxd}, ("transformers", "torch"))
