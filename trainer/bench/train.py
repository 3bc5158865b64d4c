"""Fitting from text to weights, against its two parts alone: the language model's forward pass, and the bare step.

What is between them (tokenising, shuffling, gathering, watching, logging, checkpoints) is overhead. ``efficiency`` is
the share of the whole that the two parts would take by themselves.
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

from trainer.activations import SEQUENCES_PER_FORWARD
from trainer.bench.memory import peak_bytes
from trainer.bench.sizes import Sizes, write_text
from trainer.bench.timing import Machine, Rounds
from trainer.heap import keep_freed_memory
from trainer.language_model import Capture, LanguageModel
from trainer.metrics import normalised_mse
from trainer.progress import Progress, silent
from trainer.store import open_store, sqlite_url
from trainer.tokens import load_tokenizer
from trainer.train import train


@dataclass(frozen=True)
class TrainPoint:
    """One choice of sizes."""

    num_experts: int
    k: int
    tokens: int
    efficiency: float
    """Median over rounds of (seconds of forward passes + seconds of bare steps) / seconds of ``mxd train``."""
    tokens_per_second: float
    forward_tokens_per_second: float
    step_tokens_per_second: float
    peak_memory: int
    """Bytes, of a process that does nothing else."""


@dataclass(frozen=True)
class TrainBench:
    """What ``mxd bench train`` reports."""

    efficiency: float
    """Of the last point."""
    tokens_per_second: float
    """Of the last point."""
    peak_memory: int
    """Of the last point, bytes."""
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
    progress: Progress = silent,
) -> TrainBench:
    """Measure every choice of sizes with every number of tokens, the three ways in turn."""
    keep_freed_memory()  # as mxd train does
    tokenizer = load_tokenizer(str(tokenizer_folder))
    points: list[TrainPoint] = []
    timing = Rounds(len(sizes) * len(tokens), rounds, progress)
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
        "train": lambda: _train(size, text, folder, tokens, batch, language_model),
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
    """Token ids [S, C] of no text."""
    ids = np.random.default_rng(0).integers(0, language_model.config.vocab_size, (sequences, context))
    return torch.from_numpy(ids)


@torch.inference_mode()
def forward_alone(language_model: LanguageModel, size: Sizes, tokens: int) -> None:
    """The language model's forward pass through the fitted MLP over so many tokens, and nothing else."""
    ids_BC = random_ids(language_model, SEQUENCES_PER_FORWARD, size.context)
    left = max(1, tokens // size.context)
    while left > 0:
        language_model.capture(size.layer, ids_BC[:left])
        left -= SEQUENCES_PER_FORWARD


def bare_steps(size: Sizes, batch: int, steps: int, device: str) -> Callable[[], None]:
    """So many steps (forward, backward, AdamW) on one batch that is there already."""
    layer = size.random_layer().to(device)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-4, weight_decay=0, fused=True)
    captured = Capture(*(torch.randn(batch, size.width, device=device) for _ in range(2)))

    def take() -> None:
        for _ in range(steps):
            loss = normalised_mse(layer(captured.input_TI).output_TO, captured.output_TO)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return take


def _train(size: Sizes, text: Path, folder: Path, tokens: int, batch: int, language_model: LanguageModel) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as data:
        store = open_store(sqlite_url(Path(data)))
        train(size.train_config(text, tokens, batch), Path(data), store, language_model)
        store.dispose()


def _alone(size: Sizes, text: Path, folder: Path, tokens: int, batch: int, device: str, tokenizer_folder: Path) -> None:
    keep_freed_memory()
    tokenizer: PreTrainedTokenizerBase = load_tokenizer(str(tokenizer_folder))
    _train(size, text, folder, tokens, batch, size.as_fitted(tokenizer, device))
