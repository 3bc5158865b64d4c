"""Training from text to weights, against its two parts alone: the language model's forward pass, and the bare step.

Everything else (tokenising, shuffling, gathering, metrics, logging, checkpoints) is overhead. ``efficiency`` is the
share of the total time that the two parts alone would take.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from benchmarks.trainer.memory import peak_bytes
from benchmarks.trainer.sizes import Sizes, write_text
from benchmarks.trainer.timing import Machine, Rounds
from mxd.trainer.data.activations import SEQUENCES_PER_FORWARD
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.tokenizer import load_tokenizer
from mxd.trainer.layers.mxd import normalized_mse
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.training.train import train_layers
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.memory import keep_freed_memory


@dataclass(frozen=True)
class TrainPoint:
    """Measurement at one choice of sizes."""

    num_experts: int
    k: int
    tokens: int
    efficiency: float
    """Median over rounds of (forward passes + bare steps) / ``mxd train``."""
    tokens_per_second: float
    forward_tokens_per_second: float
    step_tokens_per_second: float
    peak_memory: int
    """Peak memory in bytes, in a separate process."""


@dataclass(frozen=True)
class TrainBench:
    """Result of ``python -m benchmarks train``."""

    efficiency: float
    """Value at the last point."""
    tokens_per_second: float
    """Value at the last point."""
    peak_memory: int
    """Value at the last point, in bytes."""
    points: list[TrainPoint]
    width: int
    layers: int
    batch: int
    machine: Machine


def bench_train(
    tokenizer_folder: Path,
    sizes: Sequence[Sizes],
    tokens: Sequence[int],
    batch: int,
    rounds: int,
    device: str,
    callbacks: Callbacks = NO_CALLBACKS,
) -> TrainBench:
    """Measure every choice of sizes at every number of tokens, the three alternatives interleaved."""
    keep_freed_memory()  # as mxd train does
    tokenizer = load_tokenizer(str(tokenizer_folder))
    points: list[TrainPoint] = []
    timing = Rounds(len(sizes) * len(tokens), rounds, callbacks)
    with tempfile.TemporaryDirectory() as name:
        text = write_text(Path(name) / "text.jsonl", tokenizer, max(tokens))
        for size in sizes:
            for count in tokens:
                points.append(_point(size, count, batch, timing, device, tokenizer_folder, text, Path(name)))
    last = points[-1]
    return TrainBench(
        last.efficiency,
        last.tokens_per_second,
        last.peak_memory,
        points,
        sizes[-1].width,
        sizes[-1].layers,
        batch,
        Machine.here(device),
    )


def _point(
    size: Sizes, tokens: int, batch: int, timing: Rounds, device: str, tokenizer_folder: Path, text: Path, folder: Path
) -> TrainPoint:
    tokenizer = load_tokenizer(str(tokenizer_folder))
    language_model = size.as_fitted(tokenizer, device)
    steps = max(1, tokens // batch)
    ways = {
        "forward": lambda: forward_alone(language_model, size, steps * batch),
        "step": bare_steps(size, batch, steps, device),
        "train": lambda: train_once(size, text, folder, tokens, batch, language_model),
    }
    seconds = timing.take(ways, f"N {size.num_experts:,}, K {size.k}, {tokens:,} tokens")
    parts = zip(seconds["forward"], seconds["step"], seconds["train"], strict=True)
    rates = {name: steps * batch / statistics.median(taken) for name, taken in seconds.items()}
    return TrainPoint(
        num_experts=size.num_experts,
        k=size.k,
        tokens=steps * batch,
        efficiency=statistics.median((forward + step) / whole for forward, step, whole in parts),
        tokens_per_second=rates["train"],
        forward_tokens_per_second=rates["forward"],
        step_tokens_per_second=rates["step"],
        peak_memory=peak_bytes(_alone, size, text, folder, tokens, batch, device, tokenizer_folder),
    )


def random_ids(language_model: LanguageModel, sequences: int, context: int) -> torch.Tensor:
    """Random token ids [S, C]."""
    ids = np.random.default_rng(0).integers(0, language_model.config.vocab_size, (sequences, context))
    return torch.from_numpy(ids)


@torch.inference_mode()
def forward_alone(language_model: LanguageModel, size: Sizes, tokens: int) -> None:
    """Run only the language model's forward pass through the replaced MLP over this many tokens."""
    ids_BC = random_ids(language_model, SEQUENCES_PER_FORWARD, size.context)
    left = max(1, tokens // size.context)
    while left > 0:
        language_model.capture(size.layer, ids_BC[:left])
        left -= SEQUENCES_PER_FORWARD


def bare_steps(size: Sizes, batch: int, steps: int, device: str) -> Callable[[], None]:
    """Run this many steps (forward, backward, AdamW) on one given batch."""
    layer = size.random_layer().to(device)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-4, weight_decay=0, fused=True)
    captured = MlpActivations(*(torch.randn(batch, size.width, device=device) for _ in range(2)))

    def take() -> None:
        for _ in range(steps):
            loss = normalized_mse(layer(captured.input_TI).output_TO, captured.output_TO)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return take


def train_once(size: Sizes, text: Path, folder: Path, tokens: int, batch: int, language_model: LanguageModel) -> None:
    """Train a layer in a temporary data folder."""
    with tempfile.TemporaryDirectory(dir=folder) as data:
        database = open_trainer_database(sqlite_url(Path(data)))
        train_layers([size.train_config(text, tokens, batch)], Path(data), database, language_model)
        database.dispose()


def _alone(size: Sizes, text: Path, folder: Path, tokens: int, batch: int, device: str, tokenizer_folder: Path) -> None:
    keep_freed_memory()
    tokenizer: PreTrainedTokenizerBase = load_tokenizer(str(tokenizer_folder))
    train_once(size, text, folder, tokens, batch, size.as_fitted(tokenizer, device))
