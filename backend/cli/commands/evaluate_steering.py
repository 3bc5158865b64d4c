"""``mxd evaluate-steering``: steering against random baselines, over strengths."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.backend.cli.console import columns, task
from mxd.trainer.config import SteeringEvaluationConfig

if TYPE_CHECKING:
    from mxd.trainer.evaluation.steering import StrengthResult

HEADER = ("", "strength", "KL", "loss", "self-similarity", "promoted")


class EvaluateSteeringCommand(ModelCommand):
    """Amplify a random sample of experts at several strengths and measure the generated texts.

    Measures the KL divergence of the next token, the loss under the original model, the similarity of samples and the
    share of promoted tokens, next to a random expert of similar density and a random direction of equal length. Run
    'mxd ablate' first.
    """

    examples: ClassVar = (
        "mxd evaluate-steering gpt2-l8-k32",
        "mxd evaluate-steering gpt2-l8-k32 --sampled-experts 50 --strengths 2,4,8",
        "mxd evaluate-steering gpt2-l8-k32 --prompts 'One day,' --prompts 'In the' --json",
    )

    name: Positional[str]
    """Name or folder of the run."""
    config: SteeringEvaluationConfig

    def run(self) -> int:
        """Measure, and print medians over experts."""
        from mxd.backend.database.engine import opened
        from mxd.trainer.evaluation.steering import evaluate_steering
        from mxd.trainer.storage.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        language_model = self.load_language_model(run.language_model_source)
        with opened(settings.database_url) as database, task(f"Steering with {run.name}") as callbacks:
            results = evaluate_steering(run, self.config, language_model, database, callbacks=callbacks)
        document = {"run": run.name, "results": [asdict(result) for result in results]}
        self.report_measured(document, _table(results), [run])
        return 0


def _table(results: list[StrengthResult]) -> str:
    """Return medians over experts, one row per kind and strength."""
    from mxd.trainer.evaluation.steering import median_results

    rows = [
        (
            kind,
            f"{strength:g}",
            f"{median['kl']:.4f}",
            f"{median['loss']:.3f}",
            f"{median['self_similarity']:.3f}",
            f"{median['promoted_share']:.4f}",
        )
        for kind, strengths in median_results(results).items()
        for strength, median in strengths.items()
    ]
    return "\n".join(columns(HEADER, rows))
