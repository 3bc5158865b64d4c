"""``mxd bench gates``: choosing K of N experts by every kind of gate."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from backend.commands.base import Command
from backend.commands.bench_live import Positive, sample_run
from backend.commands.sweep import Several
from trainer.config import SAMPLE, Count, TextConfig

if TYPE_CHECKING:
    from trainer.bench.gates import FoundPoint, GatePoint, ProjectedPoint


class BenchGates(Command):
    """Choosing K of N experts by every kind of gate, in turn; and what an index finds of a flat gate's choice.

    On a CPU times are processor time of one thread. A million experts of width 768 take 15 GB.
    """

    width: Several[Positive] = (256, 768)
    """Of the input; several with commas."""
    num_experts: Several[Count] = (4_096, 65_536)
    """N; several with commas."""
    k: Positive = 32
    """K."""
    batch: Several[Positive] = (1, 256)
    """Tokens at a time; several with commas."""
    wanted: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Share of the flat gate's choice that cells are to find."""
    tokens: Count = 16_384
    """Of the sample's text, for the sample's own gate: half makes the indexes, half measures them."""
    rounds: Positive = 5
    """Of which the median counts."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it runs."""

    def run(self) -> int:
        """Measure."""
        import torch

        from trainer.bench.gates import GateBenchSizes, bench_gates

        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        device = automatic if self.device == "auto" else self.device
        if device == "cpu":
            torch.set_num_threads(1)
        sizes = GateBenchSizes(self.width, self.num_experts, self.k, self.batch, self.wanted, self.rounds)
        found = bench_gates(sizes, device, [self._fitted()])
        lines = [line for point in found.points for line in _in_words(point)]
        lines += [*map(_found_in_words, found.found), *map(_projected_in_words, found.projected)]
        self.report(asdict(found), "\n".join(lines))
        return 0

    def _fitted(self) -> tuple[FoundPoint, ProjectedPoint]:
        """Of the shipped sample."""
        from trainer.bench.gates import found_of_run
        from trainer.language_model import LanguageModel

        run = sample_run()
        text = TextConfig(text=str(SAMPLE / "text.jsonl.gz"), context=run.config.text.context)
        language_model = LanguageModel.load(run.language_model_source, "cpu")
        return found_of_run(run, language_model, text, self.tokens, self.wanted)


def _in_words(point: GatePoint) -> list[str]:
    head = f"width {point.width}, N {point.num_experts:,}, K {point.k}, {point.batch} tokens at a time"
    return [head] + [
        f"  {way.gate:<24} {way.microseconds_per_token:>10,.1f} µs a token, {way.speedup:7.1f} times as fast as flat, "
        f"{way.flops_share:.2%} of its arithmetic, {way.weight_bytes / 2**20:,.1f} MiB of weights, "
        f"{way.extra_bytes / 2**20:,.1f} beside"
        for way in point.ways
    ]


def _found_in_words(point: FoundPoint) -> str:
    found = ", ".join(f"{share:.1%} with {count}" for count, share in zip(point.probes, point.found, strict=True))
    return (
        f"{point.gate}, width {point.width}, N {point.num_experts:,}, K {point.k}: of the choice {found} of "
        f"{point.cells} cells probed; {point.wanted:.0%} with {point.needed}"
    )


def _projected_in_words(point: ProjectedPoint) -> str:
    found = ", ".join(f"{share:.1%} with {count}" for count, share in zip(point.numbers, point.found, strict=True))
    return (
        f"{point.gate}, width {point.width}, N {point.num_experts:,}, K {point.k}: of the choice {found} of "
        f"{point.width} numbers and {point.candidates} candidates"
    )
