"""The parts of training, each measured in its own process.

Shapes: T tokens, B sequences, C tokens per sequence, I input width, O output width.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from benchmarks.trainer.large.shape import in_memory, on_disk
from benchmarks.trainer.memory import extra_peak_bytes
from benchmarks.trainer.sizes import write_text
from benchmarks.trainer.timing import in_turn
from benchmarks.trainer.train import random_ids
from mxd.trainer.config.layer import LayerConfig
from mxd.trainer.config.training import TrainConfig
from mxd.trainer.data.activations import SEQUENCES_PER_FORWARD, BatchPlan, LiveActivations, StreamSpec
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import MxD, normalized_mse
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.training.layer_trainer import LayerTrainer
from mxd.trainer.training.precision import dtype_of
from mxd.trainer.training.rates import resident_bytes
from mxd.trainer.utils.memory import keep_freed_memory, trim_freed_memory

Weights = Literal["memory", "disk"]


@dataclass(frozen=True)
class Place:
    """Device and settings of a measurement."""

    tokenizer: Path
    device: str
    weights: Weights
    """Location of the language model's blocks."""
    rounds: int

    @property
    def clock(self) -> Callable[[], float]:
        """CPU time on a CPU, because other work on the machine does not lengthen it."""
        return time.perf_counter if self.device.startswith("cuda") else time.process_time

    def language_model(self, config: TrainConfig) -> LanguageModel:
        """Build the model with random weights."""
        assert config.language_model_dtype is not None
        build = in_memory if self.weights == "memory" else on_disk
        return build(config.language_model, self.tokenizer, dtype_of(config.language_model_dtype), self.device)


@dataclass(frozen=True)
class Taken:
    """Measured cost of a part."""

    seconds_per_token: float
    memory: int
    """Peak memory of the work in bytes, beyond that of the program; building is excluded."""
    program: int
    """Bytes of the program before anything was built."""


def forward_part(config: TrainConfig, place: Place) -> Taken:
    """Forward passes over a buffer's tokens up to the MLP of ``config.layer``."""
    keep_freed_memory()
    held = _Held(place.device)
    language_model = place.language_model(config)
    context = config.text.context_length
    sequences = max(1, config.optimizer.buffer_tokens // context)
    ids_BC = random_ids(language_model, sequences, context)

    @torch.inference_mode()
    def work() -> None:
        for part_BC in ids_BC.split(SEQUENCES_PER_FORWARD):
            language_model.capture(config.layer, part_BC)

    return held.taken(work, place, sequences * context)


def step_part(layer_config: LayerConfig, batch: int, place: Place) -> Taken:
    """Training steps (forward, backward, AdamW) of a layer on one given batch."""
    keep_freed_memory()
    held = _Held(place.device)
    torch.manual_seed(0)
    layer = build_layer(layer_config)
    assert isinstance(layer, MxD)
    torch.nn.init.normal_(layer.decoder.weight, std=0.02)
    layer.to(place.device)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-4, weight_decay=0, fused=True)
    x_TI = torch.randn(batch, layer_config.input_width, device=place.device)
    y_TO = torch.randn(batch, layer_config.output_width, device=place.device)

    def work() -> None:
        loss = normalized_mse(layer(x_TI).output_TO, y_TO)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return held.taken(work, place, batch)


def whole_part(config: TrainConfig, place: Place) -> Taken:
    """One buffer of text: tokenised, read by the language model, shuffled, and trained on.

    One-off costs would dominate so short a run. Initialisation is excluded from the time but not from the memory;
    checkpoints and ranks of experts are not included.
    """
    keep_freed_memory()
    held = _Held(place.device)
    language_model = place.language_model(config)
    seconds: list[float] = []

    def work() -> None:
        begun = place.clock()
        window = next(LiveActivations(language_model).buffers(StreamSpec.from_configs([asked])))
        read = place.clock()
        plan = BatchPlan.from_config(asked)
        trainer = LayerTrainer.create(asked, language_model, plan.steps, sample=window.captured[asked.layer])
        started = place.clock()
        for batch in window.batches(plan.batch_tokens):
            trainer.train_step(batch[asked.layer])
        seconds.append(place.clock() - started + read - begun)

    with tempfile.TemporaryDirectory() as folder:
        text = write_text(Path(folder) / "text.jsonl", language_model.tokenizer, 2 * config.tokens)
        asked = config.model_copy(update={"text": config.text.model_copy(update={"dataset": str(text)})})
        memory = held.peak(work)
    return Taken(seconds[0] / BatchPlan.from_config(asked).tokens, memory, held.program)


class _Held:
    """Memory beyond that of the program."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.program = self._now()

    def taken(self, work: Callable[[], None], place: Place, tokens: int) -> Taken:
        """Return the median round of ``work`` on this many tokens, after a warm-up."""
        seconds: list[float] = []
        memory = self.peak(lambda: seconds.extend(in_turn({"": work}, place.rounds, place.clock)[""]))
        return Taken(statistics.median(seconds) / tokens, memory, self.program)

    def peak(self, work: Callable[[], object]) -> int:
        """Return the peak memory of ``work`` in bytes, beyond that of the program."""
        return round(self._now() - self.program + extra_peak_bytes(work, self.device))

    def _now(self) -> int:
        gc.collect()
        trim_freed_memory()
        return int(torch.cuda.memory_allocated()) if self.device.startswith("cuda") else resident_bytes()
