"""``python -m benchmarks gpu``: everything that needs a GPU, as one prepared run without network."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from mxd.backend.cli.base import Command, Several

if TYPE_CHECKING:
    from benchmarks.gpu.sections import Section

SectionName = Literal["smoke", "account", "kernels", "layer", "throughput", "index", "live"]
SECTIONS: tuple[SectionName, ...] = ("smoke", "account", "kernels", "layer", "throughput", "index", "live")


class BenchGpu(Command):
    """Run the whole product on a GPU, then check its kernels, and measure steps, throughput, indexing and generation.

    Needs no network. Each section is a process with a time limit. A failure in one is written to gpu.json, and the next
    one follows.
    """

    examples = (
        "python -m benchmarks gpu --out OUT",
        "python -m benchmarks gpu --sections smoke --minutes 1 --out OUT",
        "python -m benchmarks gpu --device cpu --tiny --out OUT",
        "python -m benchmarks gpu --sections account --device cpu --out OUT",
    )

    out: Path
    """Output folder, for gpu.json."""
    minutes: Annotated[float, Field(gt=0)] = 9.0
    """Time of the whole run, in minutes."""
    sections: Several[SectionName] = SECTIONS
    """Sections to run, in this order. Comma-separated."""
    device: str = "cuda"
    """Device to run on: cuda, or cpu for a rehearsal, in which the kernels are interpreted."""
    tiny: bool = False
    """Rehearse at tiny sizes."""

    def run(self) -> int:
        """Run the sections."""
        if self.device == "cpu":
            # Triton reads it when a kernel is defined.
            os.environ.setdefault("TRITON_INTERPRET", "1")
        from benchmarks.gpu.sections import Setting, in_a_fork, run_sections

        started = time.time()
        setting = Setting(self.device, self.tiny, self.out)
        about = {"minutes": self.minutes, "device": self.device, "tiny": self.tiny}
        chosen = [all_sections()[name] for name in self.sections]
        outcomes = run_sections(chosen, setting, started + 60 * self.minutes, about, in_a_fork, _say)
        failed = [name for name, outcome in outcomes.items() if not outcome.is_complete]
        self.report(
            {"sections": {name: asdict(outcome) for name, outcome in outcomes.items()}},
            f"{len(outcomes) - len(failed)} of {len(outcomes)} sections are complete; failed: "
            f"{', '.join(failed) or 'none'}.",
        )
        return 1 if failed else 0


def all_sections() -> Mapping[str, Section]:
    """Sections by name, most valuable first."""
    from benchmarks.gpu.account import account_points
    from benchmarks.gpu.kernels import kernel_points
    from benchmarks.gpu.layer_step import layer_points
    from benchmarks.gpu.pipeline import index_points, live_points, throughput_points
    from benchmarks.gpu.sections import Section
    from benchmarks.gpu.smoke import smoke_points

    sections = (
        Section("smoke", smoke_points, 0.15),
        Section("account", account_points, 0.15),
        Section("kernels", kernel_points, 0.2),
        Section("layer", layer_points, 0.4),
        Section("throughput", throughput_points, 0.4),
        Section("index", index_points, 0.5),
        Section("live", live_points, 0.9),
    )
    return {section.name: section for section in sections}


def _say(line: str) -> None:
    print(line, flush=True)
