"""``mxd presets``: settings of a fit that come with the program."""

from __future__ import annotations

from dataclasses import asdict

from backend.commands.base import Command
from backend.commands.tables import columns

HEADER = ("preset", "language model", "layer", "N", "K", "tokens")
WORDS = 2
"""Columns at the left that hold words."""


class PresetsCommand(Command):
    """List the settings that mxd train --config takes by name, for open language models."""

    def run(self) -> int:
        """Print them as a table."""
        from trainer.presets import presets

        rows = [
            (
                it.name,
                it.language_model,
                str(it.layer),
                "matched" if it.num_experts is None else f"{it.num_experts:,}",
                str(it.k),
                it.tokens,
            )
            for it in presets()
        ]
        self.report([asdict(it) for it in presets()], "\n".join(columns(HEADER, rows, WORDS)))
        return 0
