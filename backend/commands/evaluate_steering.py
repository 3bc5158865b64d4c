"""``mxd evaluate-steering``: what turning experts up does to texts, over strengths, beside controls."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command, part_of
from backend.commands.console import progress, stoppable
from backend.commands.sweep import Several
from trainer.config import SteeringEvaluationConfig

if TYPE_CHECKING:
    from trainer.steering_evaluation.doses import Dose


class EvaluateSteeringCommand(Command):
    """Turn a sample of experts up at several strengths, and measure the texts: change of the next token, loss under the
    untouched language model, likeness of samples, tokens that the expert writes for. Each beside a random expert of the
    same usage and a random direction of the same length. The run's influence must have been measured."""

    name: CliPositionalArg[str]
    """Name of the run, or its folder."""
    experts: Annotated[int, Field(ge=1, le=10_000)] = 12
    """Experts, drawn at random among the active ones."""
    strengths: Several[Annotated[float, Field(gt=0, le=1000)]] = (1.0, 3.0, 6.0)
    """In units of each expert's 99th percentile; several with commas."""
    prompt: list[str] | None = None
    """A text to continue; may be given several times. By default three short openings."""
    samples: Annotated[int, Field(ge=1, le=64)] = 3
    """Continuations of each prompt."""
    max_tokens: Annotated[int, Field(ge=1, le=1024)] = 24
    """New tokens of each."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the draw of experts, the random directions and the continuations."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""

    def run(self) -> int:
        """Measure, and show the medians."""
        from backend.database import opened
        from trainer.language_model import LanguageModel
        from trainer.run import Run
        from trainer.steering_evaluation.build import evaluate_steering

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        language_model = LanguageModel.load(run.language_model_source, self.device)
        config = part_of(SteeringEvaluationConfig, self, **({"prompts": tuple(self.prompt)} if self.prompt else {}))
        with opened(settings.store_url) as store, stoppable() as stop, progress(f"Steering with {run.name}") as shown:
            doses = evaluate_steering(run, config, language_model, store, progress=shown, should_stop=stop)
        self.report({"run": run.name, "doses": [asdict(dose) for dose in doses]}, _table(doses))
        return 0


def _table(doses: list[Dose]) -> str:
    """Medians over experts, a line a kind and strength."""
    from trainer.steering_evaluation.doses import medians

    lines = [f"{'':10} {'strength':>8} {'KL':>8} {'loss':>8} {'alike':>8} {'promoted':>8}"]
    for kind, strengths in medians(doses).items():
        lines += [
            f"{kind:10} {strength:8g} {it['kl']:8.4f} {it['loss']:8.3f} {it['self_similarity']:8.3f} "
            f"{it['promoted_share']:8.4f}"
            for strength, it in strengths.items()
        ]
    return "\n".join(lines)
