"""``mxd ablate``: what ablating and amplifying each expert does."""

from __future__ import annotations

from dataclasses import asdict
from typing import ClassVar

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.backend.cli.console import task
from mxd.trainer.config import AblationConfig


class AblateCommand(ModelCommand):
    """Ablate and amplify experts on their own examples, and store the effects.

    Measures which tokens an expert promotes, the loss increase when it is ablated, and the KL divergence when it is
    amplified. Replaces earlier measurements of the same experts. The run must have been indexed.
    """

    examples: ClassVar = (
        "mxd ablate gpt2-l8-k32",
        "mxd ablate gpt2-l8-k32 --experts 46,609,4078",
        "mxd ablate gpt2-l8-k32 --examples-per-bin 3 --device cuda --json",
    )

    name: Positional[str]
    """Name or folder of the run."""
    config: AblationConfig

    def run(self) -> int:
        """Measure, and print the medians over experts."""
        from mxd.backend.database.engine import opened
        from mxd.trainer.analysis.ablation import build_ablations
        from mxd.trainer.storage.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        language_model = self.load_language_model(run.language_model_source)
        with opened(settings.database_url) as database, task(f"Measuring {run.name}", "examples") as callbacks:
            result = build_ablations(run, self.config, language_model, database, callbacks=callbacks)
        self.report_measured(
            asdict(result),
            f"{result.run}: {result.experts:,} experts on {result.examples:,} examples. Medians: ablating changes "
            f"the loss by {result.loss_increase:+.4f} nats; amplifying changes the next-token distribution by "
            f"{result.kl_amplified:.4f} nats, a random expert of similar density by {result.kl_random_expert:.4f}, a "
            f"random direction by {result.kl_random_direction:.4f}.",
            [run],
        )
        return 0
