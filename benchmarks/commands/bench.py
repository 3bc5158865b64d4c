"""The benchmarks of ``python -m benchmarks``: speed and memory, as ratios within one run where possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from benchmarks.commands.bench_browse import BenchBrowse, BenchLoad, tokenizer_folder
from benchmarks.commands.bench_busy import BenchBusy
from benchmarks.commands.bench_crowd import BenchCrowd
from benchmarks.commands.bench_evaluate import BenchEvaluate
from benchmarks.commands.bench_gpu import BenchGpu
from benchmarks.commands.bench_large import BenchLarge
from benchmarks.commands.bench_live import BenchGenerate, BenchIdentity, BenchSoak
from benchmarks.commands.bench_peers import BenchPeers
from mxd.backend.cli.base import Command, Several
from mxd.backend.cli.console import task
from mxd.trainer.config.base import Count

if TYPE_CHECKING:
    from benchmarks.trainer.layer import StepSizes
    from benchmarks.trainer.sizes import Sizes

Positive = Annotated[int, Field(gt=0)]


class BenchLayer(Command):
    """Time one training step of the sparse layer against the same equations computed densely, at GPT-2's sizes."""

    width: Positive = 768
    """Input and output width."""
    hidden_width: Positive = 3072
    """Hidden width of the shared encoder."""
    num_experts: Several[Positive] = (5_372, 21_490)
    """Number of experts N. Comma-separated values are all measured."""
    k: Several[Positive] = (32, 64)
    """Number of active experts K. Comma-separated values are all measured."""
    tokens: Several[Positive] = (1024, 2048)
    """Tokens per step. Comma-separated values are all measured."""
    rounds: Positive = 5
    """Number of interleaved rounds; medians are reported."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to measure on. Default: a GPU if there is one."""

    def sizes(self) -> list[StepSizes]:
        """N grows at the first K and the fewest tokens, then K at the last N, then the tokens at the first K."""
        from benchmarks.trainer.layer import StepSizes

        last, k, tokens = self.num_experts[-1], self.k[0], self.tokens[0]
        grown = [StepSizes(count, k, tokens) for count in self.num_experts]
        grown += [StepSizes(last, each, tokens) for each in self.k[1:]]
        return grown + [StepSizes(last, k, each) for each in self.tokens[1:]]

    def run(self) -> int:
        """Measure and report."""
        import torch

        from benchmarks.trainer.layer import bench_layer

        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        with task("Measuring", "rounds") as callbacks:
            found = bench_layer(
                width=self.width,
                hidden_width=self.hidden_width,
                sizes=self.sizes(),
                rounds=self.rounds,
                device=automatic if self.device == "auto" else self.device,
                callbacks=callbacks,
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
    """Options shared by training and indexing: a language model with random weights, and random text."""

    width: Positive = 512
    """Width of the language model."""
    layers: Positive = 6
    """Number of blocks of the language model; the MLP of the last one is replaced."""
    num_experts: Several[Positive] = (4_096, 14_000)
    """Number of experts N. Comma-separated values are all measured."""
    k: Several[Positive] = (16, 32)
    """Number of active experts K. Comma-separated values are all measured."""
    rounds: Positive = 3
    """Number of interleaved rounds; medians are reported."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to measure on. Default: a GPU if there is one."""

    @property
    def place(self) -> str:
        """Resolved device."""
        import torch

        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        return automatic if self.device == "auto" else self.device

    def sizes(self) -> list[Sizes]:
        """N grows at the first K, then K at the last N."""
        from benchmarks.trainer.sizes import Sizes

        pairs = [(count, self.k[0]) for count in self.num_experts] + [(self.num_experts[-1], k) for k in self.k[1:]]
        return [Sizes(self.width, self.layers, count, k) for count, k in pairs]


class BenchTrain(_BenchPipeline):
    """Time training from text to weights against the language model's forward pass and the bare step alone."""

    tokens: Several[Count] = (65_536, 131_072)
    """Training tokens. Comma-separated values are all measured."""
    batch: Positive = 2048
    """Tokens per step."""

    def run(self) -> int:
        """Measure and report."""
        from benchmarks.trainer.train import bench_train

        with task("Measuring", "rounds") as callbacks:
            found = bench_train(
                tokenizer_folder(), self.sizes(), self.tokens, self.batch, self.rounds, self.place, callbacks
            )
        lines = [
            f"N {it.num_experts:>7,}  K {it.k:>3}  {it.tokens:>10,} tokens: {it.efficiency:.2f} of what its parts "
            f"allow, {it.tokens_per_second:,.0f} tokens/s, {it.peak_memory / 2**20:,.0f} MiB"
            for it in found.points
        ]
        self.report(asdict(found), "\n".join(lines))
        return 0


class BenchIndex(_BenchPipeline):
    """Time indexing from text to database against the language model's forward pass and the gate alone."""

    tokens: Several[Count] = (65_536, 262_144)
    """Tokens to index. Comma-separated values are all measured."""

    def run(self) -> int:
        """Measure and report."""
        from benchmarks.trainer.index import bench_index

        with task("Measuring", "rounds") as callbacks:
            found = bench_index(tokenizer_folder(), self.sizes(), self.tokens, self.rounds, self.place, callbacks)
        lines = [
            f"N {it.num_experts:>7,}  K {it.k:>3}  {it.tokens:>10,} tokens: {it.efficiency:.2f} of the forward pass "
            f"({it.whole_efficiency:.2f} with the database), {it.tokens_per_second:,.0f} tokens/s, "
            f"{it.peak_memory / 2**20:,.0f} MiB"
            for it in found.points
        ]
        self.report(asdict(found), "\n".join(lines))
        return 0


BENCHMARKS: Mapping[str, type[Command]] = {
    "layer": BenchLayer,
    "train": BenchTrain,
    "large": BenchLarge,
    "gpu": BenchGpu,
    "peers": BenchPeers,
    "index": BenchIndex,
    "evaluate": BenchEvaluate,
    "busy": BenchBusy,
    "browse": BenchBrowse,
    "generate": BenchGenerate,
    "identity": BenchIdentity,
    "soak": BenchSoak,
    "load": BenchLoad,
    "crowd": BenchCrowd,
}
"""Name -> benchmark."""
