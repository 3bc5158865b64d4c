"""``mxd benchmark``: sparse probes on the data sets of sae-probes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.backend.cli.console import columns, task
from mxd.trainer.config.analysis import BENCHMARK_FOLDER, BenchmarkConfig

if TYPE_CHECKING:
    from mxd.trainer.evaluation.benchmark import Benchmark
    from mxd.trainer.utils.bootstrap import Interval


class BenchmarkCommand(ModelCommand):
    """Run the public benchmark sae-probes: sparse probes on 113 binary data sets.

    The runs are compared with the MLP's neurons and a random gate, on the same texts. The first run is compared with
    each of the others. The Benchmark page of the dashboard shows the results. They are also written in SAEBench's
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
        """Probe, and print the means over data sets."""
        import mxd
        from mxd.trainer.errors import UserError
        from mxd.trainer.evaluation.benchmark import SaeProbes, run_benchmark, write_saebench
        from mxd.trainer.storage.run import Run

        settings = self.settings()
        runs = [Run.load(name, settings.data) for name in self.names]
        sources = {run.language_model_source for run in runs}
        if len(sources) > 1:
            raise UserError(f"The runs belong to several language models: {', '.join(sorted(sources))}. Name one's.")
        SaeProbes().dataset_names(self.config.datasets)  # before the language model is loaded
        folder = self.out or settings.data / BENCHMARK_FOLDER
        language_model = self.load_language_model(sources.pop())
        for run in runs:
            run.layer.to(language_model.device_of(run.config.layer))
        with task("Benchmark", "data sets") as callbacks:
            result = run_benchmark(runs, self.config, language_model, folder, callbacks)
        write_saebench(runs, self.config, result, folder, f"mxd-explorer {mxd.__version__}")
        self.report_measured(asdict(result), f"{_tables(result)}\n\nWritten to {folder}.", runs)
        return 0


def _tables(result: Benchmark) -> str:
    seeds, tokens = result.settings["seeds"], result.settings["tokens"]
    head = (
        f"{len(result.datasets):,} data sets; {_range(result.training_texts)} training and "
        f"{_range(result.test_texts)} test texts each; {len(seeds)} seeds; last token of at most {tokens:,}"
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


def _range(ends: tuple[int, int]) -> str:
    low, high = ends
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _interval(interval: Interval, form: str) -> str:
    return f"{interval.low:{form}} to {interval.high:{form}}"
