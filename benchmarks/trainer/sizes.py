"""Inputs of the training and indexing benchmarks: a small language model with random weights, and random text.

The speed depends only on sizes, so nothing has to be downloaded. The tokenizer is that of a demo run, because its speed
depends on its vocabulary.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerBase

from mxd.trainer.config.layer import LayerConfig
from mxd.trainer.config.training import OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.language_model.loading import choose_dtype
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import MxD, SparseLayer
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.storage.run import Run
from mxd.trainer.training.precision import fastest_dtype

HEADS_OF = 64
"""Width of an attention head."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a language model and of the layer for its last MLP."""

    width: int
    layers: int
    num_experts: int
    k: int
    context: int = 128

    @property
    def layer(self) -> int:
        """Index of the last block, so that no block after it could be skipped."""
        return self.layers - 1

    def as_fitted(self, tokenizer: PreTrainedTokenizerBase, device: str) -> LanguageModel:
        """The model in the dtype of training."""
        return self.language_model(tokenizer, device, fastest_dtype(torch.device(device), self.width))

    def as_indexed(self, tokenizer: PreTrainedTokenizerBase, device: str) -> LanguageModel:
        """The model in the dtype of indexing."""
        return self.language_model(tokenizer, device, choose_dtype(torch.device(device)))

    def language_model(self, tokenizer: PreTrainedTokenizerBase, device: str, dtype: torch.dtype) -> LanguageModel:
        """A language model with random weights."""
        config = GPT2Config(
            n_embd=self.width,
            n_layer=self.layers,
            n_head=max(1, self.width // HEADS_OF),
            n_positions=max(512, self.context),
            vocab_size=len(tokenizer),
            bos_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = GPT2LMHeadModel(config)
        return LanguageModel(module.to(device, dtype), tokenizer, "random")  # type: ignore[arg-type]

    def train_config(self, text: Path, tokens: int, batch: int) -> TrainConfig:
        """Settings of a run that is trained on ``tokens`` of a text."""
        return TrainConfig(
            name="bench",
            language_model="random",
            layer=self.layer,
            text=TextConfig(dataset=str(text), context_length=self.context, on_short_text="repeat"),
            tokens=tokens,
            num_experts=self.num_experts,
            k=self.k,
            optimizer=OptimizerConfig(batch_tokens=batch, buffer_tokens=16 * batch),
            checkpoint_every=10**12,
        )

    def random_layer(self) -> SparseLayer:
        """A layer whose experts are about equally likely."""
        config = LayerConfig(
            input_width=self.width,
            hidden_width=4 * self.width,
            output_width=self.width,
            num_experts=self.num_experts,
            k=self.k,
            activation="gelu_tanh",
            encoder="mlp",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layer = build_layer(config)
            assert isinstance(layer, MxD)
            torch.nn.init.normal_(layer.decoder.weight, std=0.02)
        return layer

    def finished_run(self, folder: Path, text: Path, tokenizer: PreTrainedTokenizerBase) -> Run:
        """A run with random weights, as if trained."""
        run = Run.create(self.train_config(text, 1_000_000, 2048), folder, tokenizer)
        self.random_layer().save(run.folder)
        return Run.load(run.folder, folder)


def write_text(path: Path, tokenizer: PreTrainedTokenizerBase, tokens: int) -> Path:
    """Write a .jsonl file with documents of about 300 random tokens with Zipf frequencies."""
    rng = np.random.default_rng(0)
    vocabulary = len(tokenizer)
    with path.open("w") as file:
        for _ in range(-(-tokens // 300)):
            ids = np.minimum(rng.zipf(1.2, 300), vocabulary - 1).tolist()
            file.write(json.dumps({"text": tokenizer.decode(ids)}) + "\n")
    return path
