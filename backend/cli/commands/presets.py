"""``mxd presets``: training settings that come with the package."""

from __future__ import annotations

from dataclasses import asdict
from typing import ClassVar

from mxd.backend.cli.base import Command
from mxd.backend.cli.console import columns

HEADER = ("preset", "language model", "layer", "N", "K", "tokens")
TEXT_COLUMNS = 2


class PresetsCommand(Command):
    """List the training presets for open language models. Use one with 'mxd train --config PRESET'."""

    examples: ClassVar = (
        "mxd presets",
        "mxd presets --json",
        "mxd train --config gpt2 --dataset corpus.jsonl --plan",
    )

    def run(self) -> int:
        """Print a table."""
        from mxd.trainer.config.presets import presets

        rows = [
            (
                preset.name,
                preset.language_model,
                str(preset.layer),
                "matched" if preset.num_experts is None else f"{preset.num_experts:,}",
                str(preset.k),
                preset.tokens,
            )
            for preset in presets()
        ]
        self.report([asdict(preset) for preset in presets()], "\n".join(columns(HEADER, rows, TEXT_COLUMNS)))
        return 0
