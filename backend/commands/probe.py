"""``mxd probe``: how well single experts tell labelled texts apart."""

from __future__ import annotations

from typing import Any

from pydantic_settings import CliPositionalArg

from backend.commands.base import Command, part_of
from backend.commands.console import progress, stoppable
from backend.commands.tables import columns
from trainer.probing.config import ProbeConfig


class ProbeCommand(ProbeConfig, Command):
    """Try single experts as classifiers: chosen on validation texts, scored once on test texts.

    The MLP's neurons and a random gate of the same size are tried the same way, to compare with.
    """

    names: CliPositionalArg[list[str]]
    """Names of the runs, or their folders."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""

    def run(self) -> int:
        """Probe, and say what was found."""
        from backend.database import opened
        from trainer.language_model import LanguageModel
        from trainer.probing.write import probe
        from trainer.registration import register_run
        from trainer.run import Run

        settings = self.settings()
        runs = [Run.load(name, settings.data) for name in self.names]
        config = part_of(ProbeConfig, self)
        results: list[dict[str, Any]] = []
        loaded: dict[str, LanguageModel] = {}
        with opened(settings.store_url) as store, stoppable() as stop:
            for run in runs:
                register_run(run, store)
                source = run.language_model_source
                loaded[source] = loaded.get(source) or LanguageModel.load(source, self.device)
                with progress(f"Probing {run.name}", "texts") as shown:
                    results.append(probe(run, config, loaded[source], store, shown, stop))
        document: Any = results[0] if len(results) == 1 else results
        self.report(document, "\n\n".join(_in_words(result) for result in results))
        return 0


HEAD = ("class", "expert", "F1", "95 %", "bal. acc.", "ROC-AUC", "F1 of 5", "F1 neuron", "F1 random gate")


def _in_words(result: dict[str, Any]) -> str:
    kinds = result["kinds"]
    rows = []
    for name, found in result["classes"].items():
        one = found["one"]
        others = [kinds[kind]["classes"][name]["f1"] for kind in ("neurons", "random-gate")]
        rows.append(
            (
                name,
                str(found["expert"]),
                f"{one['f1']:.3f}",
                f"{one['f1_low']:.3f} to {one['f1_high']:.3f}",
                *("" if value is None else f"{value:.3f}" for value in (one["balanced_accuracy"], one["roc_auc"])),
                f"{found['five']['f1']:.3f}",
                *(f"{other:.3f}" for other in others),
            )
        )
    return "\n".join([f"{result['run']}, {result['examples']:,} examples", *columns(HEAD, rows)])
