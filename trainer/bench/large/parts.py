"""The parts of a fit, each measured in a process that does nothing else.

Shapes: T tokens, B sequences, C tokens of a sequence, I input width, O output width.
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

from trainer.activations import SEQUENCES_PER_FORWARD, Stream, WindowPlan, windows
from trainer.bench.large.shape import in_memory, on_disk
from trainer.bench.sizes import write_text
from trainer.bench.step_memory import extra_peak_bytes
from trainer.bench.timing import in_turn
from trainer.bench.train import random_ids
from trainer.config import LayerConfig, TrainConfig
from trainer.fitting import Fit
from trainer.heap import give_back_freed_memory, keep_freed_memory
from trainer.language_model import LanguageModel
from trainer.layers.mxd import MxD
from trainer.layers.registry import build_layer
from trainer.metrics import normalised_mse
from trainer.precision import dtype_of
from trainer.rates import resident_bytes

Weights = Literal["memory", "disk"]


@dataclass(frozen=True)
class Place:
    """Where and how a part is measured."""

    tokenizer: Path
    device: str
    weights: Weights
    """Where the blocks of the language model are."""
    rounds: int

    @property
    def clock(self) -> Callable[[], float]:
        """On a CPU processor time, which work of others on the machine does not lengthen by waiting."""
        return time.perf_counter if self.device.startswith("cuda") else time.process_time

    def language_model(self, config: TrainConfig) -> LanguageModel:
        """With random weights."""
        assert config.language_model_dtype is not None
        build = in_memory if self.weights == "memory" else on_disk
        return build(config.language_model, self.tokenizer, dtype_of(config.language_model_dtype), self.device)


@dataclass(frozen=True)
class Taken:
    """What a part took."""

    seconds_per_token: float
    memory: int
    """Bytes at the peak of the work, above what the program itself takes; building is left out."""
    program: int
    """Bytes of the program before anything was built."""


def forward_part(config: TrainConfig, place: Place) -> Taken:
    """Forward passes over a window's tokens that end behind the MLP of ``config.layer``."""
    keep_freed_memory()
    held = _Held(place.device)
    language_model = place.language_model(config)
    context = config.text.context
    sequences = max(1, config.optimizer.window // context)
    ids_BC = random_ids(language_model, sequences, context)

    @torch.inference_mode()
    def work() -> None:
        for part_BC in ids_BC.split(SEQUENCES_PER_FORWARD):
            language_model.capture(config.layer, part_BC)

    return held.taken(work, place, sequences * context)


def step_part(layer_config: LayerConfig, batch: int, place: Place) -> Taken:
    """Steps (forward, backward, AdamW) of a layer on one batch that is there already."""
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
        loss = normalised_mse(layer(x_TI).output_TO, y_TO)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return held.taken(work, place, batch)


def whole_part(config: TrainConfig, place: Place) -> Taken:
    """A window of text tokenised, read by the language model, shuffled, and fitted on, once.

    What is beside that in a fit comes once in hundreds of thousands of tokens, and would be most of so short a one:
    starting values, whose time is left out here and whose memory is not; checkpoints; ranks of experts.
    """
    keep_freed_memory()
    held = _Held(place.device)
    language_model = place.language_model(config)
    seconds: list[float] = []

    def work() -> None:
        begun = place.clock()
        window = next(windows(language_model, Stream.of([asked])))
        read = place.clock()
        plan = WindowPlan.of(asked)
        fit = Fit.start(asked, language_model, plan.steps, sample=window.captured[asked.layer])
        started = place.clock()
        for batch in window.batches(plan.batch):
            fit.step(batch[asked.layer])
        seconds.append(place.clock() - started + read - begun)

    with tempfile.TemporaryDirectory() as folder:
        text = write_text(Path(folder) / "text.jsonl", language_model.tokenizer, 2 * config.tokens)
        asked = config.model_copy(update={"text": config.text.model_copy(update={"text": str(text)})})
        memory = held.peak(work)
    return Taken(seconds[0] / WindowPlan.of(asked).tokens, memory, held.program)


class _Held:
    """Memory since the program's own."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.program = self._now()

    def taken(self, work: Callable[[], None], place: Place, tokens: int) -> Taken:
        """The median round of ``work`` on so many tokens, after one that does not count."""
        seconds: list[float] = []
        memory = self.peak(lambda: seconds.extend(in_turn({"": work}, place.rounds, place.clock)[""]))
        return Taken(statistics.median(seconds) / tokens, memory, self.program)

    def peak(self, work: Callable[[], object]) -> int:
        """Bytes at the peak of ``work``, above the program's own."""
        return round(self._now() - self.program + extra_peak_bytes(work, self.device))

    def _now(self) -> int:
        gc.collect()
        give_back_freed_memory()
        return int(torch.cuda.memory_allocated()) if self.device.startswith("cuda") else resident_bytes()
