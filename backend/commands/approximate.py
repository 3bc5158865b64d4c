"""``mxd approximate``: a run that finds its experts by an index over the gate of another."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command, part_of
from trainer.config import Count, RunName, TextConfig


class ApproximateCommand(TextConfig, Command):
    """Make a run that finds its experts by an index over the gate of another run, without scoring them all.

    The new run has the same weights and the same experts; how close it is, mxd evaluate says. Worth it where there are
    very many experts.
    """

    run_name: CliPositionalArg[str]
    """Name of the run with the flat gate, or its folder."""
    name: RunName
    """Name of the new run."""
    tokens: Count = 32_768
    """Tokens to read: half of them to make the index, half to measure what it finds; more than twice the width."""
    index: Literal["projected", "cells"] = "projected"
    """projected: few numbers of the input choose candidates. cells: experts that score alike are in a cell, and the
    cells that promise most are looked into; finds little unless experts lie in clusters."""
    cells: Annotated[int, Field(gt=0)] | None = None
    """With --index cells: how many; by default about √N."""
    wanted: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Share of the experts that the flat gate chooses that is to be found."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the order of the text."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""

    def run(self) -> int:
        """Make it, and say what it finds."""
        from backend.database import opened
        from trainer.approximate import ApproximateConfig, approximate
        from trainer.language_model import LanguageModel
        from trainer.run import Run

        settings = self.settings()
        run = Run.load(self.run_name, settings.data)
        context = self.context if "context" in self.model_fields_set else run.config.text.context
        config = part_of(ApproximateConfig, self, text=part_of(TextConfig, self, context=context))
        language_model = LanguageModel.load(run.language_model_source, self.device)
        with opened(settings.store_url) as store:
            found = approximate(run, config, language_model, settings.data, store)
        self.report(
            asdict(found),
            f"{found.run}: {found.gate}, {found.arithmetic:.1%} of the flat gate's arithmetic; finds "
            f"{found.found:.1%} of the experts that {found.of} chooses, with {found.mass_found:.1%} of their "
            f"coefficients (on {found.tokens:,} tokens)",
        )
        return 0
