"""``mxd protect``: runs changed so that the language model is unsure of the next token on some passages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command, part_of
from backend.commands.console import progress, stoppable
from backend.commands.tables import columns
from trainer.config import TextConfig
from trainer.in_place import PLACE, names_of, refuse_apart
from trainer.protect_config import NewtonConfig, ProtectConfig

if TYPE_CHECKING:
    from torch import Tensor

    from trainer.language_model import LanguageModel
    from trainer.run import Run

Result = Mapping[str, Any]


class ProtectCommand(ProtectConfig, Command):
    """Move C and the gate of MxDs so that on protected passages next-token predictions are nearly uniform and on other
    text the loss stays; measures confidence, paraphrases, relearning. New runs are written; those that are named stay.
    """

    names: CliPositionalArg[list[str]]
    """Names of the runs, or their folders; all of one language model, no two of one layer."""
    passages: Path
    """A .txt file with a blank line between passages, or a .jsonl file with "text" and perhaps "paraphrases" a line."""
    retain: str
    """The other text: a .txt, .jsonl, .csv or .parquet file, a folder of them, or a data set on the hub."""
    column: str = "text"
    """Name of the field or column that holds the other text."""
    split: str = "train"
    """Split of a hub data set."""
    name: str = f"{PLACE}-private"
    """Of the new runs; {run} is the name of the one that each begins as."""
    newton: Annotated[int, Field(ge=1, le=256)] | None = None  # type: ignore[assignment]
    """N: in place of descent, one damped Newton step on the scales of the N experts that write most on the passages."""
    damping: Annotated[float, Field(gt=0)] = 0.1
    """λ of the Newton step."""
    radius: Annotated[float, Field(gt=0)] | None = None
    """C of its certificate, the longest change that is reckoned with; by default the least that holds the minimum."""
    hessian_lipschitz: Annotated[float, Field(ge=0)] | None = None
    """M of its certificate, a proved Lipschitz constant of the Hessian; without it nothing is certified."""
    epsilon: Annotated[float, Field(gt=0)] = 0.9
    """Of its certificate."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """Of its certificate."""
    sigma: Annotated[float, Field(ge=0)] | None = None
    """Noise of the Newton step; by default what the certificate asks for, or none where it does not hold."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""

    def run(self) -> int:
        """Protect, and say what came of it."""
        from backend.database import opened
        from trainer.privacy.passages import read_passages
        from trainer.privacy.protect import Protection, carry_out
        from trainer.privacy.write import refuse_known, write_outcome
        from trainer.run import Run

        settings = self.settings()
        passages = read_passages(self.passages)
        runs = sorted((Run.load(name, settings.data) for name in self.names), key=lambda run: run.config.layer)
        refuse_apart(runs)
        names, config = names_of(runs, self.name), self._config()
        with opened(settings.store_url) as store:
            refuse_known(names, settings.data, store)
            with stoppable() as stop, progress("Protecting", "steps") as shown:
                language_model = self._language_model(runs[0])
                retained_SL = self._retained(runs[0], language_model)
                protection = Protection(language_model, runs, names, passages, retained_SL, config)
                outcome = carry_out(protection, shown, stop)
            result = write_outcome(runs, outcome, config, self.retain, settings.data, store)
        self.report(result, in_words(result))
        return 0

    def _config(self) -> ProtectConfig:
        newton = None if self.newton is None else part_of(NewtonConfig, self, experts=self.newton)
        return part_of(ProtectConfig, self, newton=newton)

    def _language_model(self, run: Run) -> LanguageModel:
        from trainer.language_model import LanguageModel

        return LanguageModel.load(run.language_model_source, self.device)

    def _retained(self, run: Run, language_model: LanguageModel) -> Tensor:
        """Sequences of the other text, as long as those that the run was fitted on."""
        import numpy as np
        import torch

        from trainer.text import sequences

        context = run.config.text.context
        text = TextConfig(text=self.retain, column=self.column, split=self.split, context=context)
        found = sequences(text, language_model.tokenizer, self.tokens, self.seed, "shuffled")
        return torch.from_numpy(np.stack(list(found))).long()


HEAD = ("", "predictions", "distance", "entropy", "top 5", "true token")


def in_words(result: Result) -> str:
    """The measures as a table, and what else was found, a sentence each."""
    passages = result["protected"]
    rows = [*_rows("passages", passages)]
    for kind, compared in result["otherwise"].items():
        rows += _rows(kind, compared)
    rows += _rows("other text", result["retained"]["certainty"])
    attack = result["relearning"]
    if attack is not None:
        rows += [_row(name, attack[field]) for field, name in ATTACKS]
    lines = columns(HEAD, rows)
    return "\n".join([*lines, *_sentences(result)])


ATTACKS = (
    ("original", "unseen half, before"),
    ("protected", "  protected"),
    ("attacked", "  protected, attacked"),
    ("original_attacked", "  before, attacked"),
)


def _rows(name: str, compared: Result) -> list[tuple[str, ...]]:
    return [_row(f"{name}, before", compared["before"]), _row("  after", compared["after"])]


def _row(name: str, found: Result) -> tuple[str, ...]:
    return (
        name,
        f"{found['predictions']:,}",
        f"{found['confidence_distance']:.3f}",
        f"{found['entropy']:.1%}",
        f"{found['top_five']:.1%}",
        f"{found['true_token']:.2%}",
    )


def _sentences(result: Result) -> list[str]:
    retained, added, bound = result["retained"], result["retained"]["added"], result["bound"]
    found = [
        f"Loss on other text: {retained['before']:.4f} nats before, {retained['after']:.4f} after, "
        f"{added['value']:+.4f} ({added['low']:+.4f} to {added['high']:+.4f}); the untouched language model has "
        f"{retained['original']:.4f}.",
        f"On the passages {result['loss']} is {bound['measured']:.3f} nats; a minimum among weights that can predict "
        f"uniformly would have at most {bound['bound']:.3f} at theta {bound['theta']:g}.",
    ]
    if result["certificate"] is not None:
        found.append(_certified(result["certificate"]))
    else:
        found.append(f"Kept step {result['kept_step']} of {result['steps']}.")
    return [*found, f"Written: {', '.join(result['runs'])}."]


def _certified(found: Result) -> str:
    wanted = found["calibrated_sigma"]
    asks = "" if wanted is None else f" Its constants ask for noise of {wanted:.3g}."
    step = f" The step is {found['step_length']:.3g} long, and noise of {found['sigma']:.3g} was added."
    return f"Certificate: {found['status']}. {found['reason']}{asks}{step}"
