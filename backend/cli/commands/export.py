"""``mxd export``: experts, layers and steering vectors as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.backend.cli.console import task
from mxd.backend.export.export import TableFormat
from mxd.trainer.errors import UserError
from mxd.trainer.storage.formats import LayerFormat, VectorFormat

ExportFormat = Literal[TableFormat, LayerFormat, VectorFormat]


class ExportCommand(ModelCommand):
    """Write experts with their examples, a trained layer, or steering vectors to a new folder.

    Tables need an indexed run. Layers need only its weights. Vectors need an indexed run and its language model.
    """

    examples: ClassVar = (
        "mxd export gpt2-l8-k32 --format parquet --out experts",
        "mxd export gpt2-l8-k32 --format neuronpedia --model-id gpt2-small --out batches",
        "mxd export gpt2-l8-k32 --format gguf --experts 12,40 --out vectors",
    )

    names: Positional[list[str]]
    """Names or folders of runs. Several are allowed for layers, such as a transcoder set."""
    format: ExportFormat = "json"
    """json, csv, parquet: tables of experts and top examples. neuronpedia: SAEDashboard's batches, and labels.
    saelens, sparsify, circuit-tracer: layers. gguf, vectors: steering vectors, as GGUF or .safetensors."""
    out: Path
    """Folder to write. It must be new or empty."""
    model_id: str | None = None
    """Neuronpedia's id of the language model (default: the last part of its name)."""
    source_set: str | None = None
    """Neuronpedia's id of the set of features (default: the run's name)."""
    experts: Annotated[tuple[int, ...], Field(max_length=4096)] = ()
    """Ids of the experts whose mean outputs are written as steering vectors."""

    def run(self) -> int:
        """Export, and print a summary."""
        if self.format in get_args(LayerFormat):
            return self._report(self._export_layers())
        if len(self.names) > 1:
            raise UserError(f"--format {self.format} exports one run at a time. Give one name.")
        if self.format in get_args(VectorFormat):
            return self._report(self._export_vectors())
        return self._report(self._export_tables())

    def _export_layers(self) -> str:
        from mxd.trainer.storage.formats.export import export_layers
        from mxd.trainer.storage.run import Run

        runs = [Run.load(name, self.settings().data) for name in self.names]
        assert self.format in get_args(LayerFormat)
        export_layers(runs, self.format, self.out)  # type: ignore[arg-type]
        return f"{len(runs)} layers" if len(runs) > 1 else f"the layer of {runs[0].name}"

    def _export_vectors(self) -> str:
        from mxd.backend.database.engine import opened
        from mxd.trainer.analysis.expert import mean_outputs
        from mxd.trainer.storage.formats.export import check_vectors, write_vectors
        from mxd.trainer.storage.run import Run

        settings = self.settings()
        run = Run.load(self.names[0], settings.data)
        assert self.format == "gguf" or self.format == "vectors"
        check_vectors(run, self.format, self.experts, self.out)
        language_model = self.load_language_model(run.language_model_source)
        with opened(settings.database_url) as database, task("Averaging", "experts") as callbacks:
            means = mean_outputs(run, self.experts, language_model, database, callbacks)
        write_vectors(run, self.format, {mean.expert: mean.vector_W for mean in means}, self.out)
        return f"steering vectors of {len(means)} experts of {run.name}"

    def _export_tables(self) -> str:
        from mxd.backend.database.engine import opened, reading
        from mxd.backend.export.export import Target, export_run
        from mxd.trainer.storage.run import Run

        settings = self.settings()
        run = Run.load(self.names[0], settings.data)
        assert self.format in get_args(TableFormat)
        target = Target(self.out, self.format, self.model_id, self.source_set)  # type: ignore[arg-type]
        with (
            opened(settings.database_url) as database,
            reading(database) as session,
            task(f"Exporting {run.name}", "experts") as callbacks,
        ):
            experts = export_run(session, run, target, callbacks)
        return f"{experts:,} experts of {run.name}"

    def _report(self, contents: str) -> int:
        paths = sorted(path for path in self.out.rglob("*") if path.is_file())
        size = sum(path.stat().st_size for path in paths)
        result = {
            "runs": list(self.names),
            "format": self.format,
            "out": str(self.out),
            "files": [str(path.relative_to(self.out)) for path in paths],
        }
        self.report(result, f"{self.out}: {contents} in {len(paths)} files, {size / 1e6:.1f} MB")
        return 0
