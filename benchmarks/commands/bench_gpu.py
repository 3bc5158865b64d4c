"""``python -m benchmarks gpu``: everything that needs a GPU, as one prepared run without network."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from benchmarks.commands.bench_live import Positive
from mxd.backend.cli.base import Command
from mxd.backend.cli.sweep import Several
from mxd.trainer.config import Count
from mxd.trainer.errors import UserError

if TYPE_CHECKING:
    from benchmarks.gpu.sections import Section

MB = 1e6
SectionName = Literal["kernels", "layer", "throughput", "training", "index", "live"]
SECTIONS: tuple[SectionName, ...] = ("kernels", "layer", "throughput", "training", "index", "live")
CONSTRAINTS = Path("constraints.txt")


class BenchGpu(Command):
    """Check the GPU kernels, measure steps, throughput, indexing and generation, then train real layers.

    Needs no network. A failure in one section is written to gpu.json, and the next section follows. --pack writes
    everything that the GPU machine needs; --collect makes runs of the trained layers.
    """

    examples = (
        "python -m benchmarks gpu --pack PACK --gguf model.gguf --text text.jsonl.gz --layers 4,8",
        "python -m benchmarks gpu --minutes 9 --pack-from PACK --out OUT",
        "python -m benchmarks gpu --minutes 9 --pack-from PACK --out OUT2 --resume-from OUT",
        "python -m benchmarks gpu --collect OUT --gguf model.gguf --text text.jsonl.gz",
        "python -m benchmarks gpu --device cpu --tiny --out OUT",
    )
    groups: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Pack": ("pack", "gguf", "text", "text-mb", "layers", "num-experts", "k", "tokens", "python"),
    }

    minutes: Annotated[float, Field(gt=0)] = 9.0
    """Time of the whole run, in minutes."""
    out: Path | None = None
    """Output folder: gpu.json, and the trained weights in files below 16 MB."""
    pack_from: Path | None = None
    """Folder that --pack wrote. Default: the language model and text of the tests."""
    resume_from: Path | None = None
    """Output folder of an earlier run: complete sections are kept, and training continues."""
    sections: Several[SectionName] = SECTIONS
    """Sections to run, in this order. Comma-separated."""
    device: Literal["cuda", "cpu"] = "cuda"
    """Device to run on."""
    tiny: bool = False
    """Rehearse at tiny sizes."""
    pack: Path | None = None
    """Write a pack to this folder and print its size, instead of running."""
    collect: Path | None = None
    """Register the finished layers in this output folder as runs, instead of running."""
    gguf: Path | None = None
    """GGUF file of the whole language model, for --pack and --collect."""
    text: str | None = None
    """Dataset to train on, for --pack and --collect."""
    text_mb: Annotated[float, Field(gt=0)] = 6.0
    """Largest size of the packed text, compressed, in MB."""
    layers: Several[Annotated[int, Field(ge=0)]] = (4, 8)
    """Layers to train on one pass over the text, for --pack. Comma-separated."""
    num_experts: Count | None = None
    """Number of experts N of the packed recipe. Default: as in mxd train."""
    k: Positive = 32
    """Number of active experts K of the packed recipe."""
    tokens: Count | None = None
    """Training tokens of the packed recipe. Default: as many as the first run has time for."""
    python: str | None = None
    """Python version of the GPU machine, such as 3.12: packs the wheels that it may lack. Default: no wheels."""

    def run(self) -> int:
        """Pack, collect, or run the sections."""
        if self.pack is not None:
            return self._pack(self.pack)
        if self.collect is not None:
            return self._collect(self.collect)
        if self.out is None:
            raise UserError("The output folder is missing. Add --out FOLDER.")
        if self.device == "cpu":
            # Triton reads it when a kernel is defined.
            os.environ.setdefault("TRITON_INTERPRET", "1")
        from benchmarks.gpu.sections import Setting, in_a_fork, run_sections

        started = time.time()
        setting = Setting(self.device, self.tiny, self.out, self.pack_from, self.resume_from)
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

    def _pack(self, folder: Path) -> int:
        from benchmarks.gpu.pack import Recipe, download_wheels, pinned_versions, sizes, write_pack

        gguf, text = self._sources()
        recipe = Recipe(self.layers, self.num_experts, self.k, self.tokens)
        write_pack(folder, gguf, text, int(self.text_mb * MB), recipe)
        if self.python is not None:
            download_wheels(folder, pinned_versions(CONSTRAINTS), self.python)
        files = sizes(folder)
        self.report({"files": files}, _packed(folder, files))
        return 0

    def _collect(self, folder: Path) -> int:
        from benchmarks.gpu.training import collect
        from mxd.trainer.storage.database.open import open_trainer_database

        gguf, text = self._sources()
        settings = self.settings()
        names = collect(folder, settings.data, open_trainer_database(settings.database_url), str(gguf), text)
        self.report({"runs": names}, f"Registered {', '.join(names)}. Run: mxd index {names[0]}")
        return 0

    def _sources(self) -> tuple[Path, str]:
        if self.gguf is None or self.text is None:
            raise UserError("--pack and --collect need the language model and the text. Add --gguf FILE --text FILE.")
        return self.gguf, self.text


def all_sections() -> Mapping[str, Section]:
    """Sections by name, most valuable first. The shares leave training about two thirds of the time."""
    from benchmarks.gpu.kernels import kernel_points
    from benchmarks.gpu.layer_step import layer_points
    from benchmarks.gpu.pipeline import index_points, live_points, throughput_points
    from benchmarks.gpu.sections import Section
    from benchmarks.gpu.training import training_points

    sections = (
        Section("kernels", kernel_points, 0.12),
        Section("layer", layer_points, 0.12),
        Section("throughput", throughput_points, 0.12),
        Section("training", training_points, 0.8),
        Section("index", index_points, 0.5),
        Section("live", live_points, 0.9),
    )
    return {section.name: section for section in sections}


def _say(line: str) -> None:
    print(line, flush=True)


def _packed(folder: Path, files: Mapping[str, int]) -> str:
    wheels = f"{folder}/wheels/*.whl"
    return "\n".join(
        [
            *(f"{size / MB:8.2f} MB  {name}" for name, size in files.items()),
            f"{sum(files.values()) / MB:8.2f} MB  in all. Carry {folder} and the checkout; data/demo is not needed.",
            "On the GPU machine:",
            f"  python3 -m pip install --no-index --no-deps --target /tmp/site {wheels}",
            f"  PYTHONPATH=/tmp/site python3 -m benchmarks gpu --minutes 9 --pack-from {folder} --out OUT",
        ]
    )
