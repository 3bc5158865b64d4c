"""Shuffled activations of one MLP: what a layer is fitted on.

The text is read in windows. The sequences of a window go through the language model up to the layer, their tokens are
put in one random order, and steps take them batch by batch. A window depends on nothing but the text, the seed and its
number, so fitting can go on at any window as if it had never stopped.

Shapes: T tokens of a window, I input width, O output width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from trainer.config import TrainConfig
from trainer.language_model import Capture, LanguageModel
from trainer.text import sequences

SEQUENCES_PER_FORWARD = 32


@dataclass(frozen=True)
class WindowPlan:
    """How many tokens go into windows and steps. Everything is whole: sequences, steps, windows but the last."""

    context: int
    batch: int
    window: int
    steps: int

    @classmethod
    def of(cls, config: TrainConfig) -> WindowPlan:
        """Round the batch to whole sequences and the window to whole batches."""
        context = config.text.context
        batch = max(1, round(config.optimizer.batch / context)) * context
        window = max(1, config.optimizer.window // batch) * batch
        return cls(context, batch, window, steps=max(1, config.tokens // batch))

    @property
    def tokens(self) -> int:
        """Tokens that all steps take together."""
        return self.steps * self.batch

    @property
    def steps_per_window(self) -> int:
        """Steps that a whole window feeds."""
        return self.window // self.batch


def capture_sequences(language_model: LanguageModel, layer: int, token_ids_ST: np.ndarray) -> Capture:
    """Input and output of a layer's MLP over S sequences, in float32, a few sequences at a time."""
    ids_ST = torch.from_numpy(token_ids_ST).long()
    parts = [language_model.capture(layer, part_BT) for part_BT in ids_ST.split(SEQUENCES_PER_FORWARD)]
    return Capture(*(torch.cat(values).float() for values in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Window:
    """Activations of a stretch of text, and the random order in which steps take its tokens."""

    captured: Capture
    order_T: torch.Tensor

    def batches(self, batch: int, first: int = 0) -> Iterator[Capture]:
        """Batches of ``batch`` tokens from number ``first`` on, each by one indexed gather."""
        for chosen_B in self.order_T.split(batch)[first:]:
            yield Capture(self.captured.input_TI[chosen_B], self.captured.output_TO[chosen_B])


def windows(language_model: LanguageModel, config: TrainConfig, first_window: int = 0) -> Iterator[Window]:
    """The windows of a run from number ``first_window`` on.

    Raises:
        UserError: the text ends before the wanted tokens.
    """
    plan = WindowPlan.of(config)
    per_window = plan.window // plan.context
    stream = sequences(
        config.text,
        language_model.tokenizer,
        tokens=plan.tokens,
        seed=config.seed,
        order="shuffled",
        skip=first_window * per_window,
    )
    number = first_window
    while rows := list(islice(stream, per_window)):
        captured = capture_sequences(language_model, config.layer, np.stack(rows))
        device = captured.input_TI.device
        yield Window(captured, _order(config.seed, number, captured.input_TI.shape[0]).to(device))
        number += 1


def batches(language_model: LanguageModel, config: TrainConfig, first_step: int = 0) -> Iterator[Capture]:
    """What each step of a run takes, from ``first_step`` on: the same as if the steps before had just been taken."""
    plan = WindowPlan.of(config)
    first_window, first_batch = divmod(first_step, plan.steps_per_window)
    for window in windows(language_model, config, first_window):
        yield from window.batches(plan.batch, first_batch)
        first_batch = 0


def _order(seed: int, window: int, tokens: int) -> torch.Tensor:
    state = int(np.random.SeedSequence([seed, window]).generate_state(1)[0])
    return torch.randperm(tokens, generator=torch.Generator().manual_seed(state))
