"""Shuffled MLP activations, the training data of sparse layers.

Text is read one activation buffer at a time. The sequences of a buffer pass through the model once, up to the last
required layer. Their tokens are shuffled, and training steps take them batch by batch. A buffer depends only on the
text, the seed and its index, so training can resume at any buffer. A run therefore gets the same batches alone or with
other runs.

Shapes: T tokens in a buffer, I input width, O output width.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from mxd.trainer.config.training import TextConfig, TrainConfig
from mxd.trainer.data.sequences import TEXT_START, TextPosition, TextProgress, sequence_batches
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.utils.distributed import SINGLE_PROCESS, ProcessGroup, prefetch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from mxd.trainer.data.activation_cache import ActivationCache

SEQUENCES_PER_FORWARD = 32
PREFETCHED_BUFFERS = 1


@dataclass(frozen=True)
class BatchPlan:
    """Tokens per buffer and per step. Steps have whole sequences, and buffers whole steps (the last may have fewer)."""

    context_length: int
    batch_tokens: int
    buffer_tokens: int
    steps: int

    @classmethod
    def from_config(cls, config: TrainConfig) -> BatchPlan:
        """Round the batch to whole sequences and the buffer to whole batches."""
        context = config.text.context_length
        batch = max(1, round(config.optimizer.batch_tokens / context)) * context
        buffer = max(1, config.optimizer.buffer_tokens // batch) * batch
        return cls(context, batch, buffer, steps=max(1, config.tokens // batch))

    @property
    def tokens(self) -> int:
        return self.steps * self.batch_tokens

    @property
    def sequences(self) -> int:
        """Sequences per step, and number of groups from which each step takes equally many tokens."""
        return self.batch_tokens // self.context_length

    def shard(self, group: ProcessGroup) -> range:
        """Sequence groups of this process. Raises UserError if they cannot be divided evenly."""
        if self.sequences % group.world_size:
            raise UserError(
                f"A step of {self.batch_tokens:,} tokens is {self.sequences} sequences, which cannot be divided evenly "
                f"over {group.world_size} processes. Make --batch-tokens a multiple of "
                f"{self.context_length * group.world_size:,}."
            )
        each = self.sequences // group.world_size
        return range(group.rank * each, (group.rank + 1) * each)

    @property
    def sequences_per_buffer(self) -> int:
        return self.buffer_tokens // self.context_length

    @property
    def steps_per_buffer(self) -> int:
        return self.buffer_tokens // self.batch_tokens


@dataclass(frozen=True)
class StreamSpec:
    """Settings that determine the batches of a run, or of several runs trained together."""

    language_model: str
    text: TextConfig
    seed: int
    plan: BatchPlan
    layers: tuple[int, ...]
    """Layer indices of the model, ascending."""

    @classmethod
    def from_configs(cls, configs: Sequence[TrainConfig]) -> StreamSpec:
        """Stream that the runs share. Raises UserError if the runs differ in their text, its order or their batches."""
        layers = tuple(sorted({config.layer for config in configs}))
        first, *others = (
            cls(config.language_model, config.text, config.order_seed, BatchPlan.from_config(config), layers)
            for config in configs
        )
        if any(other != first for other in others):
            raise UserError(
                "Runs trained together need the same model, text, --tokens, --batch-tokens, --buffer-tokens and "
                "--data-seed. Train the others separately."
            )
        return first

    def token_ids(
        self, tokenizer: PreTrainedTokenizerBase, first: int, progress: TextProgress
    ) -> Generator[npt.NDArray[np.int64]]:
        """Yield the token ids [S, C] of the buffers from index ``first`` on. ``progress`` as in ``sequences``."""
        each, total = self.plan.sequences_per_buffer, self.plan.tokens
        return sequence_batches(
            self.text, tokenizer, total, self.seed, "shuffled", each, skip=first * each, progress=progress
        )


def capture_layers(
    language_model: LanguageModel, layers: Sequence[int], token_ids_ST: np.ndarray, own: Sequence[int] | None = None
) -> dict[int, MlpActivations]:
    """Input and output of some layers' MLPs over S sequences, in float32, computed a few sequences at a time. With
    ``own``, ascending indices of sequences, only their activations are kept."""
    if own is not None and language_model.sharding != "tp":  # else all processes compute the same sequences together
        token_ids_ST, own = token_ids_ST[own], None
    ids_ST = torch.from_numpy(token_ids_ST).long()
    own_R = torch.arange(len(ids_ST)) if own is None else torch.tensor(own)
    buffers: dict[int, MlpActivations] = {}
    done = 0
    for first, part_BT in zip(
        range(0, len(ids_ST), SEQUENCES_PER_FORWARD), ids_ST.split(SEQUENCES_PER_FORWARD), strict=True
    ):
        kept_R = own_R[(own_R >= first) & (own_R < first + len(part_BT))] - first
        with torch.inference_mode():
            parts = language_model.capture_layers(layers, part_BT)
        # Outside inference mode, because inference tensors cannot be used in a backward pass. Preallocated, so that
        # the activations are never in memory twice.
        for layer, part in parts.items():
            if layer not in buffers:
                shapes = [(len(own_R) * ids_ST.shape[1], values.shape[1]) for values in part]
                empty = (it.new_empty(shape, dtype=torch.float32) for it, shape in zip(part, shapes, strict=True))
                buffers[layer] = MlpActivations(*empty)
            for rows, new in zip(buffers[layer], part, strict=True):
                new_BTW = new.unflatten(0, part_BT.shape)
                # A selection would be a copy.
                kept_BTW = new_BTW if len(kept_R) == len(part_BT) else new_BTW[kept_R.to(new.device)]
                rows[done : done + kept_BTW.shape[0] * part_BT.shape[1]] = kept_BTW.flatten(0, 1)
        done += len(kept_R) * part_BT.shape[1]
    return buffers


@dataclass(frozen=True)
class ActivationBuffer:
    """Activations of some sequences, and the random order in which steps take their tokens."""

    captured: Mapping[int, MlpActivations]
    order_T: torch.Tensor
    start: TextPosition = TEXT_START
    """Position in the text at or before the first sequence."""

    def batches(self, batch: int, first: int = 0) -> Iterator[dict[int, MlpActivations]]:
        """Yield batches of ``batch`` tokens, from index ``first`` on. All layers have the same tokens."""
        for tokens_B in self.order_T.split(batch)[first:]:
            yield {layer: activations.rows(tokens_B) for layer, activations in self.captured.items()}


@dataclass(frozen=True)
class LiveActivations:
    language_model: LanguageModel

    @property
    def device(self) -> torch.device:
        return self.language_model.device

    @property
    def is_independent(self) -> bool:
        """True if no other process takes part, so that a thread may compute the next buffer."""
        return self.language_model.sharding is None

    def buffers(
        self,
        stream: StreamSpec,
        first_buffer: int = 0,
        group: ProcessGroup = SINGLE_PROCESS,
        start: TextPosition = TEXT_START,
    ) -> Generator[ActivationBuffer]:
        """Yield the buffers of a stream from index ``first_buffer`` on, each process its shard of every buffer. Text is
        tokenised from ``start``, which must not be after that buffer. Raises UserError if the text is too short, or
        steps cannot be divided evenly over the processes."""
        shard, progress = stream.plan.shard(group), TextProgress(start)
        token_ids = stream.token_ids(self.language_model.tokenizer, first_buffer, progress)
        for index, ids_SC in enumerate(token_ids, first_buffer):
            next_start = progress.position
            local = [number for number in range(len(ids_SC)) if number % stream.plan.sequences in shard]
            captured = capture_layers(self.language_model, stream.layers, ids_SC, local)
            order_T = shuffled_tokens(stream, index, len(ids_SC), shard)
            yield ActivationBuffer(captured, order_T.to(self.device), start)
            del captured  # so that two buffers are never in memory
            start = next_start


def batches(
    source: LiveActivations | ActivationCache,
    stream: StreamSpec,
    first_step: int = 0,
    group: ProcessGroup = SINGLE_PROCESS,
    first: ActivationBuffer | None = None,
    progress: TextProgress | None = None,
) -> Generator[dict[int, MlpActivations]]:
    """Yield the batch of each step, by layer, from ``first_step`` on. The processes of a group together have the
    batches that a single process would have. This process's buffer ``first`` may have been computed already. The text
    begins at ``progress``, which follows the buffers: a run that stops may continue from there."""
    progress = progress or TextProgress()
    first_buffer, first_batch = divmod(first_step, stream.plan.steps_per_buffer)
    size = stream.plan.batch_tokens // group.world_size
    if first is not None and first_buffer == 0:
        progress.position = first.start
        yield from first.batches(size, first_batch)
        first_buffer, first_batch = 1, 0
    first = None  # free the buffer before computing the next one
    coming = source.buffers(stream, first_buffer, group, progress.position)
    if source.is_independent and prefetches(source.device):
        coming = prefetch(coming, PREFETCHED_BUFFERS)
    with closing(coming) as buffers:
        for buffer in buffers:
            progress.position = buffer.start
            yield from buffer.batches(size, first_batch)
            first_batch = 0
            del buffer


def prefetches(device: torch.device) -> bool:
    """True if a background thread computes the next buffer during the steps on the current one: on GPUs. Both use the
    same stream, so their kernels run in order. On a CPU they would only compete for cores and double the memory. MPS
    shares the memory with the CPU, and PyTorch does not promise that two threads may use it."""
    return device.type in ("cuda", "xpu")


def shuffled_tokens(stream: StreamSpec, buffer: int, rows: int, shard: range) -> torch.Tensor:
    """Token indices [T] of a buffer's shard, its sequence groups, in the order in which the steps take them. The
    sequences of a buffer form as many groups as a step has sequences. The tokens of each group are shuffled, and every
    step takes equally many from each group. So groups can be sharded without changing the steps."""
    steps, context = rows // stream.plan.sequences, stream.plan.context_length
    shuffled = []
    for index, number in enumerate(shard):
        state = int(np.random.SeedSequence([stream.seed, buffer, number]).generate_state(1)[0])
        order_P = torch.randperm(steps * context, generator=torch.Generator().manual_seed(state))
        sequence_P, position_P = order_P // context, order_P % context
        shuffled.append(((sequence_P * len(shard) + index) * context + position_P).view(steps, context))
    return torch.stack(shuffled, dim=1).reshape(-1)
