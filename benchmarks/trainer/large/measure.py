"""Measure a shape part by part, compare it with the plan, and extrapolate to full size."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from benchmarks.trainer.large.line import Line
from benchmarks.trainer.large.parts import Place, Taken, Weights, forward_part, step_part, whole_part
from benchmarks.trainer.large.shape import Shape
from benchmarks.trainer.memory import in_a_process
from benchmarks.trainer.timing import Machine
from mxd.trainer.config.training import OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.training.layer_trainer import build_layer_config
from mxd.trainer.training.plan import (
    BUSY_SHARE,
    ExpectedSeconds,
    PlannedTraining,
    TrainSetup,
    expected_seconds,
    products_of,
)
from mxd.trainer.training.precision import dtype_name, fastest_dtype
from mxd.trainer.training.rates import ADAMW_BYTES, DeviceRates, free_bytes, measure
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

Part = Literal["forward", "step", "whole"]


@dataclass(frozen=True)
class LargeSizes:
    """Sizes to measure."""

    blocks: tuple[int, ...]
    """Depths at which forward passes are measured; training uses the last."""
    num_experts: tuple[int, ...]
    """N of the steps; training uses the first."""
    k: int
    tokens: int
    """Tokens of an activation buffer, and of the measured training."""
    batch: int
    context: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class LargePoint:
    """A part of training, planned and measured."""

    part: Part
    blocks: int | None
    """Number of blocks, if the part uses the language model."""
    num_experts: int | None
    """N, if the part has a layer."""
    parameters: int
    """Parameters of both."""
    seconds_per_token: float
    planned_seconds_per_token: float
    memory: int
    """Peak memory in bytes beyond that of the program."""
    planned_memory: int


@dataclass(frozen=True)
class Lines:
    """Lines through the measurements; None if there is only one size."""

    seconds_by_blocks: Line | None
    """Time of one token's forward pass."""
    memory_by_blocks: Line | None
    seconds_by_experts: Line | None
    """Time of one token's share of a step."""
    memory_by_experts: Line | None

    @classmethod
    def of(cls, points: Sequence[LargePoint]) -> Lines:
        """Fit lines through the forward passes and through the steps."""
        forward = [it for it in points if it.part == "forward"]
        steps = [it for it in points if it.part == "step"]
        depths, counts = [it.blocks or 0 for it in forward], [it.num_experts or 0 for it in steps]
        return cls(
            Line.through(depths, [it.seconds_per_token for it in forward]),
            Line.through(depths, [it.memory for it in forward]),
            Line.through(counts, [it.seconds_per_token for it in steps]),
            Line.through(counts, [it.memory for it in steps]),
        )


@dataclass(frozen=True)
class FullSize:
    """The whole language model with all experts, extrapolated."""

    blocks_run: int
    """Blocks up to the trained layer."""
    blocks: int
    num_experts: int
    tokens_per_second: float
    planned_tokens_per_second: float
    memory: float
    """Bytes of language model and layer at the peaks of their parts, beyond the program."""
    planned_memory: int


@dataclass(frozen=True)
class LargeBench:
    """Result of ``python -m benchmarks large``."""

    shape: str
    language_model_parameters: int
    """Parameters of the whole language model."""
    block_parameters: int
    dtype: str
    weights: Weights
    tokens: int
    batch: int
    k: int
    points: list[LargePoint]
    program_memory: int
    """Bytes of the program without language model and layer; maximum over the parts."""
    lines: Lines
    full_size: FullSize | None
    """None unless blocks and N were measured at two points each."""
    machine: Machine


@dataclass(frozen=True)
class _Piece:
    """Plan of one part at one size."""

    part: Part
    fitting: PlannedTraining

    @property
    def config(self) -> TrainConfig:
        return self.fitting.configs[0]

    @property
    def blocks(self) -> int | None:
        return None if self.part == "step" else self.config.layer + 1

    @property
    def num_experts(self) -> int | None:
        return None if self.part == "forward" else self.config.num_experts

    @property
    def parameters(self) -> int:
        layer = 0 if self.part == "forward" else self.fitting.sizes[0].parameters
        return layer + (0 if self.part == "step" else self.fitting.parameters)

    def memory(self, weights: Weights) -> int:
        """Planned bytes."""
        fitting, config = self.fitting, self.config
        model = fitting.language_model_bytes if weights == "memory" else _bytes_at_hand(fitting)
        if self.part == "forward":
            return model + fitting.forward_bytes(config.optimizer.buffer_tokens)
        if self.part == "step":
            size = fitting.sizes[0]
            return ADAMW_BYTES * size.parameters + fitting.step_bytes(size, config.optimizer.batch_tokens)
        return sum(fitting.memory().values()) - fitting.language_model_bytes + model

    def seconds(self, expected: ExpectedSeconds) -> float:
        """Planned time per token."""
        if self.part == "whole":
            return sum(expected) / BUSY_SHARE
        return expected.forward if self.part == "forward" else expected.steps

    def measure(self, place: Place) -> Taken:
        """Measure in a separate process."""
        if self.part == "forward":
            return in_a_process(forward_part, self.config, place)
        if self.part == "whole":
            return in_a_process(whole_part, self.config, place)
        layer = build_layer_config(self.config, self.fitting.architecture)
        return in_a_process(step_part, layer, self.config.optimizer.batch_tokens, place)


def bench_large(shape: Shape, sizes: LargeSizes, place: Place, callbacks: Callbacks = NO_CALLBACKS) -> LargeBench:
    """Plan and measure every part.

    Raises:
        UserError: a part does not fit in memory; raised before anything is measured.
    """
    with _pieces(shape, sizes, place) as (pieces, full):
        check_fits_memory(pieces, place)
        rates = _rates([*(piece.fitting for piece in pieces), full], place)
        taken = []
        for number, piece in enumerate(pieces):
            callbacks.check_cancelled()
            callbacks.on_progress(number, len(pieces), _note(piece))
            taken.append(piece.measure(place))
        callbacks.on_progress(len(pieces), len(pieces), "")
        points = [_point(*found, rates, place) for found in zip(pieces, taken, strict=True)]
        lines = Lines.of(points)
        return LargeBench(
            shape=shape.name,
            language_model_parameters=full.parameters,
            block_parameters=full.forward.matrix_parameters // full.forward.blocks,
            dtype=dtype_name(full.dtype),
            weights=place.weights,
            tokens=sizes.tokens,
            batch=sizes.batch,
            k=sizes.k,
            points=points,
            program_memory=max((it.program for it in taken), default=0),
            lines=lines,
            full_size=_full_size(shape, place, lines, full, rates),
            machine=Machine.here(place.device),
        )


def _bytes_at_hand(fitting: PlannedTraining) -> int:
    """Memory of a language model whose blocks and unembedding stay on disk: one block, and everything else."""
    outline, blocks = fitting.outline, fitting.architecture.blocks
    unembedding, embedding = outline.get_output_embeddings(), outline.get_input_embeddings()
    apart = 0 if unembedding is None or unembedding.weight is embedding.weight else unembedding.weight.numel()
    inside = sum(it.numel() for it in blocks.parameters())
    return fitting.dtype.itemsize * (fitting.parameters - apart - inside + inside // len(blocks))


@contextmanager
def _pieces(shape: Shape, sizes: LargeSizes, place: Place) -> Iterator[tuple[list[_Piece], PlannedTraining]]:
    """Yield all parts, with configs that are valid while this is open, and the plan of the full size."""
    with tempfile.TemporaryDirectory() as name:
        folder, least = Path(name), min(sizes.num_experts)
        deepest = sizes.blocks[-1]
        cut = {blocks: shape.write(folder, blocks) for blocks in sizes.blocks}

        def piece(part: Part, blocks: int, num_experts: int) -> _Piece:
            config = _config(shape, sizes, cut[blocks], blocks - 1, num_experts, place.device)
            return _Piece(part, PlannedTraining([config], TrainSetup.from_device_name(place.device)))

        found = [piece("forward", blocks, least) for blocks in sizes.blocks if "forward" in sizes.parts]
        found += [piece("step", deepest, count) for count in sizes.num_experts if "step" in sizes.parts]
        found += [piece("whole", deepest, sizes.num_experts[0])] if "whole" in sizes.parts else []
        config = _config(shape, sizes, shape.write(folder), shape.layer, shape.num_experts, place.device)
        yield found, PlannedTraining([config], TrainSetup.from_device_name(place.device))


def _config(
    shape: Shape, sizes: LargeSizes, folder: str, layer: int, num_experts: int | None, device: str
) -> TrainConfig:
    return TrainConfig(
        name="large",
        language_model=folder,
        language_model_dtype=dtype_name(fastest_dtype(torch.device(device), int(shape.config.hidden_size))),
        layer=layer,
        text=TextConfig(dataset="random", context_length=sizes.context),
        tokens=sizes.tokens,
        num_experts=num_experts,
        k=sizes.k,
        optimizer=OptimizerConfig(batch_tokens=sizes.batch, buffer_tokens=sizes.tokens),
        checkpoint_every=10**12,
    )


def check_fits_memory(pieces: Sequence[_Piece], place: Place) -> None:
    """Check that every part fits in memory.

    Raises:
        UserError: one does not.
    """
    free = free_bytes(torch.device(place.device))
    for piece in pieces:
        if (needed := piece.memory(place.weights)) > free:
            raise UserError(
                f"The {_note(piece)} needs about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; "
                f"{WAYS_OUT[piece.part]}."
            )


WAYS_OUT: dict[Part, str] = {
    "forward": "take fewer --blocks or --tokens, or --weights disk",
    "step": "take fewer --num-experts or a smaller --batch, or leave step and whole out of --parts",
    "whole": "take fewer --num-experts or --blocks, or --weights disk, or leave whole out of --parts",
}


def _rates(fittings: Sequence[PlannedTraining], place: Place) -> DeviceRates:
    """Return the time of each of their matrix products, measured once."""
    products = dict.fromkeys(product for it in fittings for product in products_of(it).values())
    return measure(products, torch.device(place.device), place.clock)


def _note(piece: _Piece) -> str:
    blocks, count = piece.blocks, piece.num_experts
    depth = f"{blocks} block{'' if blocks == 1 else 's'}"
    if piece.part == "forward":
        return f"forward pass, {depth}"
    return f"step, N {count:,}" if piece.part == "step" else f"whole fit, {depth}, N {count:,}"


def _point(piece: _Piece, taken: Taken, rates: DeviceRates, place: Place) -> LargePoint:
    return LargePoint(
        part=piece.part,
        blocks=piece.blocks,
        num_experts=piece.num_experts,
        parameters=piece.parameters,
        seconds_per_token=taken.seconds_per_token,
        planned_seconds_per_token=piece.seconds(expected_seconds(piece.fitting, rates)),
        memory=taken.memory,
        planned_memory=piece.memory(place.weights),
    )


def _full_size(shape: Shape, place: Place, lines: Lines, full: PlannedTraining, rates: DeviceRates) -> FullSize | None:
    seconds, memory = lines.seconds_by_blocks, lines.memory_by_blocks
    step_seconds, step_memory = lines.seconds_by_experts, lines.memory_by_experts
    if not (seconds and memory and step_seconds and step_memory):
        return None
    count, blocks, run = full.sizes[0].num_experts, shape.blocks, shape.layer + 1
    return FullSize(
        blocks_run=run,
        blocks=blocks,
        num_experts=count,
        tokens_per_second=1 / (seconds.at(run) + step_seconds.at(count)),
        planned_tokens_per_second=1 / sum(expected_seconds(full, rates)),
        memory=memory.at(blocks) + step_memory.at(count),
        planned_memory=_Piece("whole", full).memory(place.weights),
    )
