"""``mxd import``, ``mxd export``, ``mxd push``, ``mxd pull`` and ``mxd report``: exchange with others."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from mxd.backend.cli.base import Command, FlagsOf, ModelCommand, Positional
from mxd.backend.cli.console import task, write_output
from mxd.backend.cli.parser import validate
from mxd.backend.export import TableFormat
from mxd.trainer.config.analysis import ImportConfig
from mxd.trainer.config.base import Config, RunName
from mxd.trainer.errors import UserError
from mxd.trainer.storage.formats import LayerFormat, VectorFormat


class PushCommand(Command):
    """Upload a run to a Hugging Face Hub repo: weights, settings, tokenizer and a model card with its results.

    Sign in first with 'hf auth login'. Labels, notes and top examples are not uploaded.
    """

    examples: ClassVar = (
        "mxd push gpt2-l8-k32 alice/gpt2-mxd-l8",
        "mxd push gpt2-l8-k32 alice/gpt2-mxd-l8 --private",
        "mxd push my-run alice/my-run --language-model openai-community/gpt2",
    )

    name: Positional[str]
    """Name or folder of the run."""
    repository: Positional[str]
    """Hub repo as OWNER/NAME. It is created if it does not exist."""
    language_model: str | None = None
    """Public name of the language model, such as its Hub name (default: its name in the run's settings)."""
    private: bool = False
    """Create a private repo."""

    def run(self) -> None:
        from mxd.backend.queries.runs import card_figures

        (run,) = self.load_runs([self.name])
        with self.reading() as session:
            figures = card_figures(session, run.name)
        url = run.push_to_hub(
            self.repository, self.language_model, figures, visibility="private" if self.private else "public"
        )
        self.report({"run": run.name, "repository": self.repository, "commit": url}, f"Uploaded {run.name} to {url}")


class PullCommand(Command):
    """Download a run from a Hugging Face Hub repo, or copy it from a folder, into the data folder."""

    examples: ClassVar = (
        "mxd pull alice/gpt2-mxd-l8",
        "mxd pull alice/gpt2-mxd-l8 --revision v2 --name gpt2-v2",
        "mxd pull ./exported-run --language-model ~/models/gpt2",
    )

    source: Positional[str]
    """Hub repo as OWNER/NAME, or a folder written by Run.save_pretrained."""
    revision: str | None = None
    """Branch, tag or commit."""
    name: RunName | None = None
    """Name of the run here (default: its name there)."""
    language_model: str | None = None
    """Folder or Hub name of the language model (default: the name in the run's settings)."""

    def run(self) -> None:
        from mxd.trainer.storage.run import Run
        from mxd.trainer.storage.run_records import adopt

        data = self.settings().data
        run = Run.from_pretrained(self.source, self.revision)
        with self.opened() as database:
            adopted = adopt(run, self.name or run.name, absolute_path(self.language_model), data, database)
        self.report(
            {"run": adopted.name, "source": self.source, "language_model": adopted.config.language_model},
            f"{adopted.name}: {adopted.config.method} for layer {adopted.config.layer} of "
            f"{adopted.config.language_model}. Next: mxd index {adopted.name} --dataset TEXT --tokens COUNT",
        )


def absolute_path(language_model: str | None) -> str | None:
    """Return a local folder as an absolute path, because runs are used from other folders. Leave Hub names as is."""
    folder = Path(language_model).expanduser() if language_model else None
    return str(folder.resolve()) if folder is not None and folder.is_dir() else language_model


class _Features(Config):
    """Import of features."""

    source: Path
    name: RunName


class ImportCommand(Command):
    """Import a sparse layer trained with the paper's code, sparsify, SAELens or circuit-tracer as a run.

    Nothing in the files is executed. Index the run afterwards, like one of your own. With --what features, import a
    Neuronpedia export or SAEDashboard's batches as a run without weights: its examples and labels can be browsed and
    searched.
    """

    examples: ClassVar = (
        "mxd import EleutherAI/sae-llama-3-8b-32x --language-model meta-llama/Meta-Llama-3-8B --name l8 --layer 8",
        "mxd import OWNER/NAME@REVISION --part layers.10 --language-model google/gemma-2-2b --name gemma",
        "mxd import gemma-2-2b/20-gemmascope-res-16k --what features --name gemmascope-l20",
    )

    flags: Annotated[dict[str, Any], FlagsOf(ImportConfig, positional=frozenset({"source"}), optional=True)]
    what: Literal["layer", "features"] = "layer"
    """layer: weights, with --name and --language-model. features: a folder with batch-N.json, or with the folders
    features, activations and explanations, with --name alone."""

    def run(self) -> None:
        if self.what == "features":
            self._import_features()
            return
        from mxd.trainer.storage.formats.import_run import import_run

        config = validate(ImportConfig, self.flags, type(self), "mxd import")
        config = config.model_copy(update={"language_model": absolute_path(config.language_model)})
        with self.opened() as database:
            result = import_run(config, self.settings().data, database)
        self.report(
            asdict(result),
            f"{result.run}: {result.method} with {result.num_experts:,} experts, K = {result.k:,}, for layer "
            f"{result.layer} of {result.language_model} ({result.format}). Next: mxd index {result.run} --dataset TEXT "
            "--tokens COUNT",
        )

    def _import_features(self) -> None:
        from mxd.trainer.analysis.imported_features import read_features, save_features

        config = validate(_Features, self.flags, type(self), "mxd import")
        features = read_features(config.source)
        with self.opened() as database:
            run = save_features(features, config.name, config.source, self.settings().data, database)
        result = {"run": run.name, "features": len(features.features), "labels": len(features.labels)}
        self.report(
            result, f"{run.name}: {len(features.features):,} features, {len(features.labels):,} labels. Next: mxd serve"
        )


ExportFormat = Literal[TableFormat, LayerFormat, VectorFormat, "mxd"]


class ExportCommand(ModelCommand):
    """Export a run: one .mxd file with everything, tables of experts, a website, a trained layer, or steering vectors.

    A .mxd file holds weights, top examples, labels, notes, lists, sessions and evaluations, but neither the language
    model nor paths of this machine. Open it with 'mxd serve FILE'. Tables and websites need an indexed run. Layers need
    only its weights. Vectors need an indexed run and its language model.
    """

    examples: ClassVar = (
        "mxd export gpt2-l8-k32 --format mxd",
        "mxd export gpt2-l8-k32 --format site --out gpt2-site",
        "mxd export gpt2-l8-k32 --format gguf --experts 12,40 --out vectors",
    )

    names: Positional[list[str]]
    """Names or folders of runs. Several are allowed for layers, such as a transcoder set."""
    format: ExportFormat = "json"
    """One file with everything: mxd. Tables of experts and top examples: json, csv, parquet. A read-only website with
    search, for any static host: site. Batches of SAEDashboard, and labels: neuronpedia. Layers: saelens, sparsify,
    circuit-tracer. Steering vectors: gguf, or vectors for .safetensors."""
    out: Path | None = None
    """Folder to write, which must be new or empty; for mxd, the file (default: NAME.mxd in the current folder)."""
    model_id: str | None = None
    """Neuronpedia's id of the language model (default: the last part of its name)."""
    source_set: str | None = None
    """Neuronpedia's id of the set of features (default: the run's name)."""
    experts: Annotated[tuple[int, ...], Field(max_length=4096)] = ()
    """Ids of the experts whose mean outputs are written as steering vectors."""

    def run(self) -> None:
        if len(self.names) > 1 and self.format not in get_args(LayerFormat):
            raise UserError(f"--format {self.format} exports one run at a time. Give one name.")
        if self.experts and self.format not in get_args(VectorFormat):
            raise UserError("--experts chooses steering vectors, of --format gguf or vectors. Leave it out.")
        if (self.model_id or self.source_set) and self.format != "neuronpedia":
            raise UserError("--model-id and --source-set need --format neuronpedia. Leave them out.")
        if self.format == "mxd":
            self._pack()
            return
        if self.out is None:
            raise UserError("Missing --out. Run 'mxd export --help' for a description.")
        export = {
            **dict.fromkeys(get_args(LayerFormat), self._export_layers),
            **dict.fromkeys(get_args(VectorFormat), self._export_vectors),
        }.get(self.format, self._export_tables)
        contents = export(self.out)
        paths = sorted(path for path in self.out.rglob("*") if path.is_file())
        size = sum(path.stat().st_size for path in paths)
        result = {
            "runs": list(self.names),
            "format": self.format,
            "out": str(self.out),
            "files": [str(path.relative_to(self.out)) for path in paths],
        }
        self.report(result, f"{self.out}: {contents} in {len(paths)} files, {size / 1e6:.1f} MB")

    def _pack(self) -> None:
        from mxd.backend.export.bundles.pack import pack

        (run,) = self.load_runs(self.names)
        out = self.out or Path(f"{run.name}.mxd")
        with self.reading() as session, task(f"Packing {run.name}", "tables") as callbacks:
            size = pack(session, run, out, callbacks)
        self.report({"run": run.name, "out": str(out), "bytes": size}, f"{out}, {size / 1e6:.1f} MB")

    def _export_layers(self, out: Path) -> str:
        from mxd.trainer.storage.formats.transcoders import export_layers

        runs = self.load_runs(self.names)
        export_layers(runs, self.format, out)  # type: ignore[arg-type]
        return f"{len(runs)} layers" if len(runs) > 1 else f"the layer of {runs[0].name}"

    def _export_vectors(self, out: Path) -> str:
        from mxd.trainer.analysis.expert import mean_outputs
        from mxd.trainer.storage.formats.transcoders import check_vectors, write_vectors

        (run,) = self.load_runs(self.names)
        assert self.format == "gguf" or self.format == "vectors"
        check_vectors(run, self.format, self.experts, out)
        language_model = self.load_language_model(run.language_model_source)
        with self.opened() as database, task("Averaging", "experts") as callbacks:
            means = mean_outputs(run, self.experts, language_model, database, callbacks)
        write_vectors(run, self.format, {mean.expert: mean.vector_W for mean in means}, out)
        return f"steering vectors of {len(means)} experts of {run.name}"

    def _export_tables(self, out: Path) -> str:
        from mxd.backend.export.tables import export_run

        (run,) = self.load_runs(self.names)
        with self.reading() as session, task(f"Exporting {run.name}", "experts") as callbacks:
            experts = export_run(session, run, out, self.format, callbacks, self.model_id, self.source_set)  # type: ignore[arg-type]
        return f"{experts:,} experts of {run.name}"


class ReportCommand(Command):
    """Write one HTML file with all evaluations and probes of the database, and the commands that reproduce them."""

    examples: ClassVar = ("mxd report", "mxd report --out results/report.html", "mxd report --data /data/mxd --json")

    out: Path = Path("report.html")
    """File to write."""

    def run(self) -> None:
        from mxd.backend.plots.report import report

        with self.reading() as session:
            content = report(session, self.settings().data)
        write_output(self.out, content)
        size = self.out.stat().st_size
        self.report({"out": str(self.out), "bytes": size}, f"{self.out}, {size / 1e6:.1f} MB")
