"""``python -m benchmarks evaluate``: what ``mxd evaluate`` costs, in forward passes of the language model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from benchmarks.commands.bench_live import Positive
from mxd.backend.cli.base import Command, Several
from mxd.backend.cli.console import task
from mxd.trainer.config.analysis import EvaluateConfig
from mxd.trainer.config.base import SAMPLE, Count
from mxd.trainer.config.training import TextConfig


class BenchEvaluate(Command):
    """Time the evaluation of runs of the demo under all interventions, in forward passes of the language model."""

    runs: Several[str] = ("smollm2-l22", "smollm2-l10")
    """Runs of the demo. Comma-separated values are all measured."""
    tokens: Count = 2_048
    """Tokens of held-out text."""
    rounds: Positive = 5
    """Number of interleaved rounds; medians are reported."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the language model."""

    def run(self) -> int:
        """Measure and report."""
        from benchmarks.trainer.evaluate import bench_evaluate
        from mxd.trainer.language_model.model import LanguageModel
        from mxd.trainer.storage.run import Run

        runs = [Run.load(name, SAMPLE) for name in self.runs]
        text = TextConfig(dataset=str(SAMPLE / "held_out.jsonl.gz"))
        language_model = LanguageModel.load(runs[0].language_model_source, self.device)
        with task("Measuring", "rounds") as callbacks:
            result = bench_evaluate(
                language_model, runs, EvaluateConfig(text=text, tokens=self.tokens), self.rounds, callbacks
            )
        lines = [
            f"{it.run}, layer {it.layer} of {result.blocks}: seven interventions take {it.interventions_ratio:.2f} "
            f"forward passes, all of mxd evaluate {it.full_ratio:.2f} ({it.forward_tokens_per_second:,.0f} tokens/s)"
            for it in result.points
        ]
        self.report(asdict(result), "\n".join(lines))
        return 0
