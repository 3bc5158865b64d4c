"""``mxd probe``: single experts as classifiers of labelled texts."""

from __future__ import annotations

from typing import Any, ClassVar

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.backend.cli.console import columns, task
from mxd.trainer.config import TextConfig
from mxd.trainer.config.analysis import ProbeConfig

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
        """Probe, and print one table per run."""
        from mxd.backend.database.engine import opened
        from mxd.trainer.evaluation.probing import probe
        from mxd.trainer.language_model.model import LanguageModel
        from mxd.trainer.storage.run import Run
        from mxd.trainer.storage.run_records import register_run

        settings = self.settings()
        runs = [Run.load(name, settings.data) for name in self.names]
        results: list[dict[str, Any]] = []
        loaded: dict[str, LanguageModel] = {}
        with opened(settings.database_url) as database:
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
