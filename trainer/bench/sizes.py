"""What fitting and indexing are measured on: a small language model with random weights, and text without meaning.

How fast both are depends on sizes alone, so nothing has to be downloaded and anybody measures the same. The tokenizer
is that of a run, for its speed does depend on what it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerBase

from trainer.config import LayerConfig, OptimizerConfig, TextConfig, TrainConfig
from trainer.language_model import LanguageModel
from trainer.layers.mxd import MxD
from trainer.layers.registry import build_layer
from trainer.layers.sparse import SparseLayer
from trainer.loading import choose_dtype
from trainer.precision import fitting_dtype
from trainer.run import Run

HEADS_OF = 64
"""Width of an attention head."""


@dataclass(frozen=True)
class Sizes:
    """Of a language model and of the layer that is fitted to its last MLP."""

    width: int
    layers: int
    num_experts: int
    k: int
    context: int = 128

    @property
    def layer(self) -> int:
        """The last one: there is nothing after it that could be left out."""
        return self.layers - 1

    def as_fitted(self, tokenizer: PreTrainedTokenizerBase, device: str) -> LanguageModel:
        """In the numbers that it is fitted in."""
        return self.language_model(tokenizer, device, fitting_dtype(torch.device(device), self.width))

    def as_indexed(self, tokenizer: PreTrainedTokenizerBase, device: str) -> LanguageModel:
        """In the numbers that it is indexed in."""
        return self.language_model(tokenizer, device, choose_dtype(torch.device(device)))

    def language_model(self, tokenizer: PreTrainedTokenizerBase, device: str, dtype: torch.dtype) -> LanguageModel:
        """One with random weights."""
        config = GPT2Config(
            n_embd=self.width,
            n_layer=self.layers,
            n_head=max(1, self.width // HEADS_OF),
            n_positions=max(512, self.context),
            vocab_size=len(tokenizer),
            bos_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        with torch.random.fork_rng():
            torch.manual_seed(0)
            module = GPT2LMHeadModel(config)
        return LanguageModel(module.to(device, dtype), tokenizer, "random")  # type: ignore[arg-type]

    def train_config(self, text: Path, tokens: int, batch: int) -> TrainConfig:
        """Settings of a run that is fitted on ``tokens`` of a text."""
        return TrainConfig(
            name="bench",
            language_model="random",
            layer=self.layer,
            text=TextConfig(text=str(text), context=self.context, when_short="repeat"),
            tokens=tokens,
            num_experts=self.num_experts,
            k=self.k,
            optimizer=OptimizerConfig(batch=batch, window=16 * batch),
            checkpoint_every=10**12,
        )

    def random_layer(self) -> SparseLayer:
        """A layer whose every expert is about equally likely."""
        config = LayerConfig(
            input_width=self.width,
            hidden_width=4 * self.width,
            output_width=self.width,
            num_experts=self.num_experts,
            k=self.k,
            activation="gelu_tanh",
            encoder="mlp",
        )
        with torch.random.fork_rng():
            torch.manual_seed(0)
            layer = build_layer(config)
            assert isinstance(layer, MxD)
            torch.nn.init.normal_(layer.decoder.weight, std=0.02)
        return layer

    def finished_run(self, folder: Path, text: Path, tokenizer: PreTrainedTokenizerBase) -> Run:
        """A run with random weights, as if it had been fitted."""
        run = Run.create(self.train_config(text, 1_000_000, 2048), folder, tokenizer)
        self.random_layer().save(run.folder)
        return Run.load(run.folder, folder)


def write_text(path: Path, tokenizer: PreTrainedTokenizerBase, tokens: int) -> Path:
    """Documents of about 300 random tokens whose frequencies fall as those of words do; a .jsonl file."""
    rng = np.random.default_rng(0)
    vocabulary = len(tokenizer)
    with path.open("w") as file:
        for _ in range(-(-tokens // 300)):
            ids = np.minimum(rng.zipf(1.2, 300), vocabulary - 1).tolist()
            file.write(json.dumps({"text": tokenizer.decode(ids)}) + "\n")
    return path
