"""``python -m benchmarks large``: cost of a large language model, measured on a few blocks of its shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from benchmarks.commands.bench_browse import tokenizer_folder
from benchmarks.commands.bench_live import Positive
from mxd.backend.cli.base import Command, Positional, Several
from mxd.backend.cli.console import task
from mxd.trainer.config.base import Count

if TYPE_CHECKING:
    from benchmarks.trainer.large.line import Line
    from benchmarks.trainer.large.measure import LargeBench, LargePoint, LargeSizes

GB = 1e9


class BenchLarge(Command):
    """Measure the cost of training on a large language model: random weights in its shape, cut to a few blocks.

    Forward passes at several depths, steps at several N, and a buffer that is filled and trained on, each in its own
    process, are compared with the plan and extrapolated to full size. On a CPU, times are CPU seconds of one thread.
    """

    language_model: Positional[str] = "llama-3.1-8b"
    """Name of a preset (mxd train --presets), a folder, or a Hub name; only its config is read."""
    blocks: Several[Positive] = (1, 2, 3)
    """Depths at which forward passes are measured; training uses the last. Comma-separated."""
    num_experts: Several[Count] = (7_168, 14_336, 21_504)
    """Numbers of experts at which steps are measured; training uses the first. Comma-separated."""
    k: Positive | None = None
    """Number of active experts K. Default: the preset's, or 32."""
    tokens: Count = 4_096
    """Tokens of an activation buffer, and of the measured training."""
    batch: Count = 1_024
    """Tokens per step."""
    context: Annotated[int, Field(ge=8, le=65_536)] = 128
    """Tokens per sequence."""
    parts: Several[Literal["forward", "step", "whole"]] = ("forward", "step", "whole")
    """Parts to measure. Comma-separated."""
    weights: Literal["memory", "disk"] = "memory"
    """Location of the language model's blocks: memory, or files that every forward pass reads."""
    rounds: Positive = 2
    """Number of rounds after one warm-up; the median is reported. Training is measured once."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to measure on."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.context <= self.batch <= self.tokens:
            raise ValueError("--context must not be above --batch, nor --batch above --tokens.")
        return self

    def run(self) -> int:
        """Measure and report."""
        import torch

        from benchmarks.trainer.large.measure import bench_large
        from benchmarks.trainer.large.parts import Place
        from benchmarks.trainer.large.shape import Shape

        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        device = automatic if self.device == "auto" else self.device
        if device == "cpu":
            torch.set_num_threads(1)
        shape = Shape.find(self.language_model)
        place = Place(tokenizer_folder(), device, self.weights, self.rounds)
        with task("Measuring", "parts") as callbacks:
            found = bench_large(shape, self._sizes(shape.k), place, callbacks)
        self.report(asdict(found), "\n".join(_lines(found)))
        return 0

    def _sizes(self, k: int) -> LargeSizes:
        from benchmarks.trainer.large.measure import LargeSizes

        return LargeSizes(
            blocks=self.blocks,
            num_experts=self.num_experts,
            k=self.k or k,
            tokens=self.tokens,
            batch=self.batch,
            context=self.context,
            parts=self.parts,
        )


def _lines(found: LargeBench) -> Iterator[str]:
    where = "in memory" if found.weights == "memory" else "on disk"
    yield (
        f"{found.shape}: {found.language_model_parameters / GB:.1f} B parameters, {found.block_parameters / GB:.3f} B "
        f"a block, in {found.dtype}, blocks {where}; the program itself takes {found.program_memory / GB:.2f} GB"
    )
    for point in found.points:
        yield _describe_point(point)
    yield from _describe_line(
        "a token's forward pass", "block", 1, found.lines.seconds_by_blocks, found.lines.memory_by_blocks
    )
    yield from _describe_line(
        "a token of a step", "1,000 experts", 1000, found.lines.seconds_by_experts, found.lines.memory_by_experts
    )
    if (full := found.full_size) is not None:
        yield (
            f"at full size, {full.blocks_run} of {full.blocks} blocks run and N {full.num_experts:,}: "
            f"{full.tokens_per_second:,.2f} tokens/s (planned {full.planned_tokens_per_second:,.2f}), "
            f"{full.memory / GB:.1f} GB (planned {full.planned_memory / GB:.1f})"
        )


def _describe_point(point: LargePoint) -> str:
    blocks = "" if point.blocks is None else f", {point.blocks} block{'' if point.blocks == 1 else 's'}"
    experts = "" if point.num_experts is None else f", N {point.num_experts:,}"
    return (
        f"{point.part + blocks + experts:<28} {1e3 * point.seconds_per_token:9.3f} ms a token (planned "
        f"{1e3 * point.planned_seconds_per_token:.3f}), {1 / point.seconds_per_token:,.1f} tokens/s, "
        f"{point.memory / GB:.2f} GB (planned {point.planned_memory / GB:.2f})"
    )


def _describe_line(what: str, unit: str, units: int, seconds: Line | None, memory: Line | None) -> Iterator[str]:
    if seconds is None or memory is None:
        return
    yield (
        f"{what}: {1e3 * seconds.start:.3f} ms and {1e3 * units * seconds.each:.3f} ms a {unit}{_off(seconds)}; "
        f"{memory.start / GB:.2f} GB and {units * memory.each / GB:.3f} GB a {unit}{_off(memory)}"
    )


def _off(line: Line) -> str:
    return "" if line.residual is None else f" (points are {line.residual:.1%} off at most)"
