"""Shuffled activations of one or more MLPs: what layers are fitted on.

The text is read in windows. The sequences of a window go through the language model once, up to the last layer that is
wanted, their tokens are put in one random order, and steps take them batch by batch. A window depends on nothing but
the text, the seed and its number, so fitting can go on at any window as if it had never stopped, and a run gets the
same batches whichever other runs are fitted beside it.

Shapes: T tokens of a window, I input width, O output width.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from trainer.ahead import ahead
from trainer.config import TextConfig, TrainConfig
from trainer.distributed import ALONE, Ranks
from trainer.errors import UserError
from trainer.language_model import Capture, LanguageModel
from trainer.text import sequences

SEQUENCES_PER_FORWARD = 32
WINDOWS_AHEAD = 1


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
    def sequences(self) -> int:
        """Sequences that a step amounts to, and classes of sequences from which each step takes equally many tokens."""
        return self.batch // self.context

    def share(self, ranks: Ranks) -> range:
        """The classes of sequences that are this process's.

        Raises:
            UserError: they cannot be shared out evenly.
        """
        if self.sequences % ranks.world:
            raise UserError(
                f"A step of {self.batch:,} tokens is {self.sequences} sequences, which {ranks.world} processes cannot "
                f"share evenly; choose a --batch that is a multiple of {self.context * ranks.world:,}."
            )
        each = self.sequences // ranks.world
        return range(ranks.rank * each, (ranks.rank + 1) * each)

    @property
    def steps_per_window(self) -> int:
        """Steps that a whole window feeds."""
        return self.window // self.batch


@dataclass(frozen=True)
class Stream:
    """What decides the batches of a run, or of several that are fitted on the same."""

    language_model: str
    text: TextConfig
    seed: int
    plan: WindowPlan
    layers: tuple[int, ...]
    """Of the language model, ascending."""

    @classmethod
    def of(cls, configs: Sequence[TrainConfig]) -> Stream:
        """The stream of some runs.

        Raises:
            UserError: they do not want the same text in the same order, or the same batches.
        """
        layers = tuple(sorted({layer for config in configs for layer in config.layers}))
        first, *others = (
            cls(config.language_model, config.text, config.order_seed, WindowPlan.of(config), layers)
            for config in configs
        )
        if any(other != first for other in others):
            raise UserError(
                "Runs that are fitted together need the same language model, text, tokens, batch, window and text "
                "seed; fit the others by themselves."
            )
        return first


def capture_layers(
    language_model: LanguageModel, layers: Sequence[int], token_ids_ST: np.ndarray
) -> dict[int, Capture]:
    """Input and output of some layers' MLPs over S sequences, in float32, a few sequences at a time."""
    ids_ST = torch.from_numpy(token_ids_ST).long()
    whole: dict[int, Capture] = {}
    done = 0
    for part_BT in ids_ST.split(SEQUENCES_PER_FORWARD):
        with torch.inference_mode():
            parts = language_model.captures(layers, part_BT)
        # Outside of inference mode: what is made inside cannot be kept for a backward pass. And at once where it
        # belongs, so that a window is never in memory twice.
        for layer, part in parts.items():
            if layer not in whole:
                whole[layer] = Capture(*(it.new_empty(ids_ST.numel(), it.shape[1], dtype=torch.float32) for it in part))
            for rows, new in zip(whole[layer], part, strict=True):
                rows[done : done + part_BT.numel()] = new
        done += part_BT.numel()
    return whole


def capture_sequences(language_model: LanguageModel, layers: Sequence[int], token_ids_ST: np.ndarray) -> Capture:
    """The input of the first of some layers and the outputs of all, as the run that writes them is compared with."""
    return Capture.spanning(capture_layers(language_model, layers, token_ids_ST), layers)


@dataclass(frozen=True)
class Window:
    """Activations of a stretch of text, and the random order in which steps take its tokens."""

    captured: Mapping[int, Capture]
    """By layer of the language model."""
    order_T: torch.Tensor

    def batches(self, batch: int, first: int = 0) -> Iterator[dict[int, Capture]]:
        """Batches of ``batch`` tokens from number ``first`` on, each by one indexed gather; the same tokens of every
        layer."""
        for chosen_B in self.order_T.split(batch)[first:]:
            yield {layer: whole.rows(chosen_B) for layer, whole in self.captured.items()}


def windows(
    language_model: LanguageModel, stream: Stream, first_window: int = 0, ranks: Ranks = ALONE
) -> Generator[Window]:
    """The windows of a stream from number ``first_window`` on; of several ranks each has its share of every one.

    Raises:
        UserError: the text ends before the wanted tokens, or the ranks cannot share a step evenly.
    """
    plan, share = stream.plan, stream.plan.share(ranks)
    per_window = plan.window // plan.context
    text = sequences(
        stream.text,
        language_model.tokenizer,
        tokens=plan.tokens,
        seed=stream.seed,
        order="shuffled",
        skip=first_window * per_window,
    )
    number = first_window
    while rows := list(islice(text, per_window)):
        mine = [row for place, row in enumerate(rows) if place % plan.sequences in share]
        captured = capture_layers(language_model, stream.layers, np.stack(mine))
        order_T = _order(stream.seed, number, len(rows) // plan.sequences, plan.context, share)
        yield Window(captured, order_T.to(language_model.device))
        del captured  # so that two windows are never in memory
        number += 1


def batches(
    language_model: LanguageModel,
    stream: Stream,
    first_step: int = 0,
    ranks: Ranks = ALONE,
    begun: Window | None = None,
) -> Iterator[dict[int, Capture]]:
    """What each step takes, by layer, from ``first_step`` on: the same as if the steps before had just been taken.

    Of several ranks each has its share of every step, and together they have what one process alone would.

    Args:
        language_model: is read a window at a time.
        stream: what to read.
        first_step: from 0.
        ranks: which share to take.
        begun: this process's first window, where it has been read before.
    """
    first_window, first_batch = divmod(first_step, stream.plan.steps_per_window)
    size = stream.plan.batch // ranks.world
    if begun is not None and first_window == 0:
        yield from begun.batches(size, first_batch)
        first_window, first_batch = 1, 0
    begun = None  # a window is let go of before the next one is made
    with closing(beside(windows(language_model, stream, first_window, ranks), language_model.device)) as found:
        for window in found:
            yield from window.batches(size, first_batch)
            first_batch = 0
            del window


def beside(found: Generator[Window], device: torch.device) -> Generator[Window]:
    """The same windows; on a GPU the next is tokenised, queued and shuffled in a thread while one is fitted on.

    Both use one CUDA stream, so what is asked for later is done later. On a CPU the two would only take each other's
    cores, and twice the memory.
    """
    return ahead(found, WINDOWS_AHEAD) if device.type == "cuda" else found


def _order(seed: int, window: int, steps: int, context: int, share: range) -> torch.Tensor:
    """The tokens of a window's share in the order in which its steps take them.

    The sequences of a window fall into as many classes as a step has sequences. The tokens of each class are shuffled,
    and every step takes equally many from each: so the classes can be shared out, and the steps stay what they were.
    """
    shuffled = []
    for place, number in enumerate(share):
        state = int(np.random.SeedSequence([seed, window, number]).generate_state(1)[0])
        order_P = torch.randperm(steps * context, generator=torch.Generator().manual_seed(state))
        sequence_P, position_P = order_P // context, order_P % context
        shuffled.append(((sequence_P * len(share) + place) * context + position_P).view(steps, context))
    return torch.stack(shuffled, dim=1).reshape(-1)
