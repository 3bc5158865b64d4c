"""``mxd influence``: what each expert does and how much it matters, into the store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command, part_of
from backend.commands.console import progress, stoppable
from trainer.config import InfluenceConfig


class InfluenceCommand(Command):
    """Measure every expert on its own contexts: what it writes, and what is lost and gained when it is switched off or
    turned up; replaces what was measured before. The run must have been indexed."""

    name: CliPositionalArg[str]
    """Name of the run, or its folder."""
    per_interval: Annotated[int, Field(ge=1, le=100)] = 1
    """Contexts read of each interval of coefficients; each counts for as many active tokens as it stands for."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the random experts and random directions that are compared with."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""

    def run(self) -> int:
        """Measure, and say what a typical expert does."""
        from backend.database import opened
        from trainer.influence import build_influence
        from trainer.language_model import LanguageModel
        from trainer.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        language_model = LanguageModel.load(run.language_model_source, self.device)
        config = part_of(InfluenceConfig, self)
        with (
            opened(settings.store_url) as store,
            stoppable() as stop,
            progress(f"Measuring {run.name}", "contexts") as shown,
        ):
            result = build_influence(run, config, language_model, store, progress=shown, should_stop=stop)
        self.report(
            asdict(result),
            f"{result.run}: {result.experts:,} experts on {result.contexts:,} contexts; in the median, switching one "
            f"off adds {result.added_loss:+.4f} nats, and turning it up changes the next token by {result.kl_up:.4f} "
            f"nats (a random expert of the same usage {result.kl_other:.4f}, a random direction "
            f"{result.kl_direction:.4f})",
        )
        return 0
