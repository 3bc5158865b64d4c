"""``mxd bench``: speed and memory, as ratios taken in one run where there is something to compare with."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from pydantic_settings import CliSubCommand

from backend.commands.base import Command, CommandGroup
from backend.commands.bench_browse import BenchBrowse, BenchLoad, tokenizer_folder
from backend.commands.bench_gates import BenchGates
from backend.commands.bench_large import BenchLarge
from backend.commands.bench_live import BenchGenerate, BenchIdentity, BenchSoak
from backend.commands.console import progress
from backend.commands.sweep import Several
from trainer.config import Count

if TYPE_CHECKING:
    from trainer.bench.layer import StepSizes
    from trainer.bench.sizes import Sizes

Positive = Annotated[int, Field(gt=0)]


class BenchLayer(Command):
    """One step of fitting: the sparse layer against the same equations done densely, with GPT-2's sizes."""

    width: Positive = 768
    """Input and output width."""
    hidden_width: Positive = 3072
    """Of the shared encoder."""
    num_experts: Several[Positive] = (5_372, 21_490)
    """N; several with commas."""
    k: Several[Positive] = (32, 64)
    """K; several with commas."""
    tokens: Several[Positive] = (1024, 2048)
    """Of a step; several with commas."""
    rounds: Positive = 5
    """Of which the median counts."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it runs."""

    def sizes(self) -> list[StepSizes]:
        """N grows with the first K and the fewest tokens, then K with the last N, then the tokens with the first K."""
        from trainer.bench.layer import StepSizes

        last, k, tokens = self.num_experts[-1], self.k[0], self.tokens[0]
        grown = [StepSizes(count, k, tokens) for count in self.num_experts]
        grown += [StepSizes(last, each, tokens) for each in self.k[1:]]
        return grown + [StepSizes(last, k, each) for each in self.tokens[1:]]

    def run(self) -> int:
        """Measure."""
        import torch

        from trainer.bench.layer import bench_layer

        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        with progress("Measuring", "rounds") as shown:
            found = bench_layer(
                width=self.width,
                hidden_width=self.hidden_width,
                sizes=self.sizes(),
                rounds=self.rounds,
                device=automatic if self.device == "auto" else self.device,
                progress=shown,
            )
        lines = [
            f"N {it.num_experts:>7,}  K {it.k:>3}  {it.tokens:>6,} tokens: {it.speedup:.1f} times as fast as dense "
            f"({it.sparse_seconds:.3f} s and {it.dense_seconds:.3f} s), {it.memory_ratio:.2f} of its memory, gradients "
            f"differ by {it.gradient_error:.1e}"
            for it in found.points
        ]
        self.report(asdict(found), "\n".join(lines))
        return 0


class _BenchPipeline(Command):
    """What fitting and indexing share: a language model with random weights, and text without meaning."""

    width: Positive = 512
    """Of the language model."""
    layers: Positive = 6
    """Of the language model; the last one's MLP is what is fitted."""
    num_experts: Several[Positive] = (4_096, 14_000)
    """N; several with commas."""
    k: Several[Positive] = (16, 32)
    """K; several with commas."""
    rounds: Positive = 3
    """Of which the median counts."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it runs."""

    @property
    def place(self) -> str:
        """The device that is meant."""
        import torch

        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        return automatic if self.device == "auto" else self.device

    def sizes(self) -> list[Sizes]:
        """N grows with the first K, then K with the last N."""
        from trainer.bench.sizes import Sizes

        pairs = [(count, self.k[0]) for count in self.num_experts] + [(self.num_experts[-1], k) for k in self.k[1:]]
        return [Sizes(self.width, self.layers, count, k) for count, k in pairs]


class BenchTrain(_BenchPipeline):
    """Fitting from text to weights, against the language model's forward pass and the bare step alone."""

    tokens: Several[Count] = (65_536, 131_072)
    """To fit on; several with commas."""
    batch: Positive = 2048
    """Tokens of a step."""

    def run(self) -> int:
        """Measure."""
        from trainer.bench.train import bench_train

        with progress("Measuring", "rounds") as shown:
            found = bench_train(
                tokenizer_folder(), self.sizes(), self.tokens, self.batch, self.rounds, self.place, shown
            )
        lines = [
            f"N {it.num_experts:>7,}  K {it.k:>3}  {it.tokens:>10,} tokens: {it.efficiency:.2f} of what its parts "
            f"allow, {it.tokens_per_second:,.0f} tokens/s, {it.peak_memory / 2**20:,.0f} MiB"
            for it in found.points
        ]
        self.report(asdict(found), "\n".join(lines))
        return 0


class BenchIndex(_BenchPipeline):
    """Indexing from text to store, against the language model's forward pass and the gate alone."""

    tokens: Several[Count] = (65_536, 262_144)
    """To index; several with commas."""

    def run(self) -> int:
        """Measure."""
        from trainer.bench.index import bench_index

        with progress("Measuring", "rounds") as shown:
            found = bench_index(tokenizer_folder(), self.sizes(), self.tokens, self.rounds, self.place, shown)
        lines = [
            f"N {it.num_experts:>7,}  K {it.k:>3}  {it.tokens:>10,} tokens: {it.efficiency:.2f} of the forward pass "
            f"({it.whole_efficiency:.2f} with the store), {it.tokens_per_second:,.0f} tokens/s, "
            f"{it.peak_memory / 2**20:,.0f} MiB"
            for it in found.points
        ]
        self.report(asdict(found), "\n".join(lines))
        return 0


class BenchCommand(CommandGroup):
    """Measure speed and memory."""

    layer: CliSubCommand[BenchLayer]
    """a step of fitting, sparse against dense"""
    train: CliSubCommand[BenchTrain]
    """fitting, against the language model and the step alone"""
    gates: CliSubCommand[BenchGates]
    """choosing K of N experts, by every kind of gate"""
    large: CliSubCommand[BenchLarge]
    """fitting to a large language model, on a few blocks of its shape"""
    index: CliSubCommand[BenchIndex]
    """indexing, against the language model alone"""
    browse: CliSubCommand[BenchBrowse]
    """a server under browsing"""
    generate: CliSubCommand[BenchGenerate]
    """routing and steering, against the bare language model"""
    identity: CliSubCommand[BenchIdentity]
    """generations with no edits, against transformers without us"""
    soak: CliSubCommand[BenchSoak]
    """a server under many clients, some of which leave"""
    load: CliSubCommand[BenchLoad]
    """browsing and many clients at once, then ten times that"""
