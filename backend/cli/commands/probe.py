"""``mxd probe`` and ``mxd benchmark``: experts as classifiers of texts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.backend.cli.console import columns, task
from mxd.trainer.config import TextConfig
from mxd.trainer.config.analysis import BENCHMARK_FOLDER, BenchmarkConfig, ProbeConfig

if TYPE_CHECKING:
    from mxd.trainer.evaluation.benchmark_results import Benchmark
    from mxd.trainer.utils.bootstrap import Interval


HEADER = ("class", "expert", "F1", "95 %", "bal. acc.", "ROC-AUC", "F1 of 5", "F1 neuron", "F1 random gate")


class ProbeCommand(ModelCommand):
    """Test single experts as classifiers of labelled texts: selected on validation texts, scored once on test texts.

    MLP neurons and a random gate of the same size are tested the same way as baselines.
    """

    examples: ClassVar = (
        "mxd probe gpt2-l8-k32 --labels reviews.csv",
        "mxd probe gpt2-l8-k32 gpt2-l8-k64 --labels news.jsonl --label-column topic",
        "mxd probe gpt2-l8-k32 --labels code.jsonl --level token --json",
    )

    names: Positional[list[str]]
    """Names or folders of the runs."""
    config: ProbeConfig

    def run(self) -> int:
        from mxd.trainer.evaluation.probing import probe
        from mxd.trainer.language_model.model import LanguageModel
        from mxd.trainer.storage.run_records import register_run

        runs = self.load_runs(self.names)
        results: list[dict[str, Any]] = []
        loaded: dict[str, LanguageModel] = {}
        with self.opened() as database:
            for run in runs:
                register_run(run, database)
                source = run.language_model_source
                loaded[source] = loaded.get(source) or self.load_language_model(source)
                with task(f"Probing {run.name}", "texts") as callbacks:
                    results.append(probe(run, self.config, loaded[source], database, callbacks))
        document: Any = results[0] if len(results) == 1 else results
        texts = [TextConfig(dataset=self.config.labels, column=self.config.text_column)]
        self.report_measured(document, "\n\n".join(_table(result) for result in results), runs, texts)
        return 0


def _table(result: dict[str, Any]) -> str:
    kinds = result["kinds"]
    rows = []
    for name, scores in result["classes"].items():
        one = scores["top1"]
        baselines = [kinds[kind]["classes"][name]["f1"] for kind in ("neurons", "random-gate")]
        rows.append(
            (
                name,
                str(scores["expert"]),
                f"{one['f1']:.3f}",
                f"{one['f1_low']:.3f} to {one['f1_high']:.3f}",
                *("" if value is None else f"{value:.3f}" for value in (one["balanced_accuracy"], one["roc_auc"])),
                f"{scores['top5']['f1']:.3f}",
                *(f"{baseline:.3f}" for baseline in baselines),
            )
        )
    return "\n".join([f"{result['run']}, {result['examples']:,} examples", *columns(HEADER, rows)])


class BenchmarkCommand(ModelCommand):
    """Run the public benchmark sae-probes: sparse probes on 113 binary data sets.

    The runs are compared with the MLP's neurons and a random gate, on the same texts. The first run is compared with
    each of the others. The Evaluate page of the dashboard shows the results. They are also written in SAEBench's
    format. Install sae-probes first:
    pip install --no-deps sae-probes==0.4.2
    """

    examples: ClassVar = (
        "mxd benchmark gpt2-l8 gpt2-l8-transcoder gpt2-l8-skip",
        "mxd benchmark gpt2-l8 gpt2-l8-transcoder --texts 300 --tokens 64",
        "mxd benchmark gpt2-l8 --datasets 105_click_bait --datasets 96_spam_is --out clicks --json",
    )

    names: Positional[list[str]]
    """Names or folders of the runs, all of one language model."""
    config: BenchmarkConfig
    out: Path | None = None
    """Folder of the results; the same folder continues an interrupted benchmark (default: DATA/benchmark)."""

    def run(self) -> int:
        import mxd
        from mxd.trainer.errors import UserError
        from mxd.trainer.evaluation.benchmark import SaeProbes, run_benchmark, write_saebench

        runs = self.load_runs(self.names)
        sources = {run.language_model_source for run in runs}
        if len(sources) > 1:
            raise UserError(f"The runs belong to several language models: {', '.join(sorted(sources))}. Name one's.")
        SaeProbes().dataset_names(self.config.datasets)  # before the language model is loaded
        folder = self.out or self.settings().data / BENCHMARK_FOLDER
        language_model = self.load_language_model(sources.pop())
        for run in runs:
            run.layer.to(language_model.device_of(run.config.layer))
        with task("Benchmark", "data sets") as callbacks:
            result = run_benchmark(runs, self.config, language_model, folder, callbacks)
        write_saebench(runs, self.config, result, folder, f"mxd-explorer {mxd.__version__}")
        self.report_measured(asdict(result), f"{_tables(result)}\n\nWritten to {folder}.", runs)
        return 0


def _tables(result: Benchmark) -> str:
    from mxd.backend.queries.probes import number_range

    seeds, tokens = result.settings.seeds, result.settings.tokens
    head = (
        f"{len(result.datasets):,} data sets; {number_range(result.training_texts)} training and "
        f"{number_range(result.test_texts)} test texts each; {len(seeds)} seeds; last token of at most {tokens:,}"
    )
    scores = [
        (score.subject, str(score.units), f"{score.mean.value:.3f}", _interval(score.mean, ".3f"))
        for score in result.scores
        if score.metric == "auc"
    ]
    first = result.scores[0].subject
    differences = [
        (
            f"{first} − {each.subject}",
            str(each.units),
            f"{each.mean.value:+.3f}",
            _interval(each.mean, "+.3f"),
            f"{each.better} of {len(result.datasets)}",
        )
        for each in result.differences
        if each.metric == "auc"
    ]
    return "\n".join(
        [
            head,
            "",
            *columns(("subject", "units", "ROC-AUC", "95 % over data sets"), scores),
            "",
            *columns(("difference", "units", "ROC-AUC", "95 % over data sets", "higher on"), differences),
        ]
    )


def _interval(interval: Interval, form: str) -> str:
    return f"{interval.low:{form}} to {interval.high:{form}}"
