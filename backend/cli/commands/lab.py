"""``mxd lab``: experimental commands."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.backend.cli.commands.train import TRAIN_FLAGS, TrainCommand
from mxd.backend.cli.console import columns, task
from mxd.trainer.config.layer import methods
from mxd.trainer.config.training import PLACE, TextConfig, TrainConfig
from mxd.trainer.experimental import ExperimentalTrainConfig, ProtectConfig

METHODS = methods("core", "experimental")
LAB_FLAGS = replace(TRAIN_FLAGS, model=ExperimentalTrainConfig, types={"method": Literal[METHODS]})


class LabTrainCommand(TrainCommand):
    """Train with experimental methods, penalties and controls. Accepts all options of 'mxd train'.

    None of them improved on the core methods so far. The documentation, page "Beyond the paper", has the findings.
    """

    examples: ClassVar = (
        "mxd lab train openai-community/gpt2 --layer 8 --dataset corpus.jsonl --tokens 20M --method hidden-mxd",
        "mxd lab train openai-community/gpt2 --layer 8 --dataset corpus.jsonl --tokens 20M --diversity-weight 0.01",
        "mxd lab train openai-community/gpt2 --layer 8 --dataset corpus.jsonl --tokens 20M --freeze gate",
    )
    methods: ClassVar[tuple[str, ...]] = METHODS
    config_class: ClassVar[type[TrainConfig]] = ExperimentalTrainConfig
    program: ClassVar = "mxd lab train"

    flags: Annotated[dict[str, Any], LAB_FLAGS]

    @property
    def _trainer(self) -> Any:
        from mxd.trainer.experimental.training import train_experimental

        return train_experimental


Result = Mapping[str, Any]
HEADER = ("", "predictions", "distance", "entropy", "top 5", "true token")
ATTACKS = (
    ("original", "unseen half, before"),
    ("protected", "  protected"),
    ("attacked", "  protected, attacked"),
    ("original_attacked", "  before, attacked"),
)
"""Field of the relearning results -> row title."""


class LabProtectCommand(ModelCommand):
    """Fine-tune C and the gate of MxDs towards uniform next-token predictions on protected passages.

    The loss on the retain text stays within a limit. Confidence, paraphrases and relearning attacks are measured. New
    runs are written; the named runs stay unchanged. It hides the wording, not the content: see the results.
    """

    examples: ClassVar = (
        "mxd lab protect l3 --passages secrets.txt --retain corpus.jsonl",
        "mxd lab protect l2 l3 l4 --passages secrets.jsonl --retain corpus.jsonl --steps 200 --max-added-loss 0.02",
        "mxd lab protect l3 --passages secrets.txt --retain corpus.jsonl --name '{run}-safe' --json",
    )

    names: Positional[list[str]]
    """Names or folders of the runs. All must belong to the same language model and to different layers."""
    passages: Path
    """A .txt file with blank lines between passages, or a .jsonl file with "text" and optional "paraphrases" fields."""
    retain: str
    """Retain text: a .txt, .jsonl, .csv or .parquet file, a folder of them, or a dataset on the Hub."""
    column: str = "text"
    """Field or column of the retain text."""
    split: str = "train"
    """Split of a Hub dataset."""
    unprotected: Path | None = None
    """Passages in the same format that should stay predictable. Measured only."""
    name: str = f"{PLACE}-private"
    """Name pattern of the new runs; {run} is the name of the original run."""
    config: ProtectConfig

    def run(self) -> None:
        import numpy as np
        import torch

        from mxd.trainer.data.sequences import sequences
        from mxd.trainer.experimental.protect import check_new_runs, protect, read_passages, write_outcome
        from mxd.trainer.storage.run_sets import check_compatible_runs, names_of

        data = self.settings().data
        passages = read_passages(self.passages)
        unprotected = read_passages(self.unprotected) if self.unprotected else []
        runs = sorted(self.load_runs(self.names), key=lambda run: run.config.layer)
        check_compatible_runs(runs)
        names = names_of(runs, self.name)
        retain = TextConfig(dataset=self.retain, column=self.column, split=self.split)
        # Its sequences have the context length that the first run was trained with.
        text = runs[0].config.text.model_copy(update=retain.model_dump(include={"dataset", "column", "split"}))
        with self.opened() as database:
            check_new_runs(names, data, database)
            with task("Protecting", "steps") as callbacks:
                language_model = self.load_language_model(runs[0].language_model_source)
                ids = sequences(text, language_model.tokenizer, self.config.tokens, self.config.seed, "shuffled")
                retained_SL = torch.from_numpy(np.stack(list(ids))).long()
                model, result = protect(
                    language_model, runs, names, passages, retained_SL, self.config, unprotected, callbacks
                )
            write_outcome(runs, model, result, self.config, data, database)
        self.report_measured(result, format_result(result), runs, [retain])


def format_result(result: Result) -> str:
    rows = [*_rows("passages", result["protected"])]
    for kind, comparison in result["variations"].items():
        rows += _rows(kind, comparison)
    rows += _rows("retain text", result["retained"]["confidence"])
    relearning = result["relearning"]
    if relearning is not None:
        rows += [_row(title, relearning[field]) for field, title in ATTACKS]
    retained, added = result["retained"], result["retained"]["loss_increase"]
    sentences = [
        f"Loss on the retain text: {retained['before']:.4f} nats before, {retained['after']:.4f} after, "
        f"{added['value']:+.4f} ({added['low']:+.4f} to {added['high']:+.4f}); original model "
        f"{retained['original']:.4f}.",
        f"Kept step {result['best_step']} of {result['steps']}.",
        f"New runs: {', '.join(result['runs'])}.",
    ]
    return "\n".join([*columns(HEADER, rows), *sentences])


def _rows(title: str, comparison: Result) -> list[tuple[str, ...]]:
    return [_row(f"{title}, before", comparison["before"]), _row("  after", comparison["after"])]


def _row(title: str, certainty: Result) -> tuple[str, ...]:
    return (
        title,
        f"{certainty['predictions']:,}",
        f"{certainty['confidence_distance']:.3f}",
        f"{certainty['entropy']:.1%}",
        f"{certainty['top_five']:.1%}",
        f"{certainty['true_token']:.2%}",
    )
