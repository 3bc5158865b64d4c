"""``mxd finetune``: several runs, each in its layer, moved together towards what the untouched language model says."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from backend.commands.console import Interrupted, StopRequest, progress
from trainer.config import Count, OptimizerConfig, TextConfig
from trainer.errors import UserError
from trainer.in_place import PLACE
from trainer.whole.config import LEARNING_RATE, FinetuneConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.run import Run
    from trainer.whole.finetune import FinetuneResult


class FinetuneCommand(TextConfig, Command):
    """Fine-tune runs of different layers with all of them in place at once, so that together they predict what the
    untouched language model does. New runs are written; those that are named stay as they are.
    """

    names: CliPositionalArg[list[str]]
    """Names of the runs, or their folders; all of one language model, no two of one layer."""
    text: str | None = None  # type: ignore[assignment]
    """A .txt, .jsonl, .csv or .parquet file, a folder of them, or a data set on the hub."""
    tokens: Count | None = None
    """Tokens to fit on, such as 500k."""
    name: str = f"{PLACE}-whole"
    """Of the new runs; {run} is the name of the one that each begins as."""
    learning_rate: Annotated[float, Field(gt=0)] = LEARNING_RATE
    """Peak learning rate of AdamW."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of all steps over which the learning rate rises linearly from 0."""
    decay: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Share of all steps, at the end, over which it falls linearly to 0."""
    batch: Count = 2048
    """Tokens per step."""
    next_token_weight: Annotated[float, Field(ge=0)] = 0.0
    """Of the next-token loss beside the KL divergence; 0: the untouched language model alone says what is right."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the order of the text."""
    checkpoint_every: Count = 100_000
    """Tokens between checkpoints."""
    log_every: Count = 10
    """Steps between logged metrics."""
    resume: bool = False
    """Go on where the new runs stopped, or begin them. With --name alone their own settings are taken."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""

    def run(self) -> int:
        """Fine-tune, and say how near it has come."""
        from trainer.run import Run

        settings = self.settings()
        runs = [Run.load(name, settings.data) for name in self.names]
        config = self._config(runs, settings.data)
        from backend.database import opened
        from trainer.heap import keep_freed_memory
        from trainer.language_model import LanguageModel
        from trainer.whole.finetune import configs_of, finetune

        configs_of(runs, config)  # what cannot be is said before anything large is loaded
        keep_freed_memory()
        stop = StopRequest()
        with opened(settings.store_url) as store, stop.listening(), progress(f"Fine-tuning {len(runs)} runs") as shown:
            result = finetune(
                runs,
                config,
                settings.data,
                store,
                LanguageModel.load(runs[0].language_model_source, self.device),
                resume="if-any" if self.resume else "never",
                progress=shown,
                should_stop=stop,
            )
        self.report(asdict(result), _in_words(result))
        if all(run.status == "finished" for run in result.runs):
            return 0
        raise Interrupted("stopped; go on with the same line and --resume", stop.exit_code)

    def _config(self, runs: Sequence[Run], data: Path) -> FinetuneConfig:
        """What was asked for: all of it, or what differs from the runs that are taken up again."""
        given = {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}
        saved = self._saved(runs, data) if self.resume else {}
        text = saved.get("text", {"context": runs[0].config.text.context}) | _only(TextConfig, given)
        optimizer = saved.get("optimizer", {"learning_rate": LEARNING_RATE}) | _only(OptimizerConfig, given)
        missing = [f"--{name}" for name, part in (("text", text), ("tokens", saved | given)) if not part.get(name)]
        if missing:
            raise UserError(f"{' and '.join(missing)} must be given; see mxd finetune --help.")
        more = saved | _only(FinetuneConfig, given)
        return FinetuneConfig.model_validate({**more, "name": self.name, "text": text, "optimizer": optimizer})

    def _saved(self, runs: Sequence[Run], data: Path) -> dict[str, Any]:
        """The settings of the new runs, of which the first stands for all; empty where they are new."""
        from trainer.run import RUN_FILE, Run, runs_folder

        folder = runs_folder(data) / self.name.replace(PLACE, runs[0].name)
        if not (folder / RUN_FILE).is_file():
            return {}
        config = Run.load(folder, data).config
        return _only(FinetuneConfig, config.model_dump()) | {"seed": config.order_seed}


def _only(kind: type[TextConfig | OptimizerConfig | FinetuneConfig], values: dict[str, Any]) -> dict[str, Any]:
    """Those values that are settings of a kind."""
    return {name: value for name, value in values.items() if name in kind.model_fields}


def _in_words(result: FinetuneResult) -> str:
    lines = [f"{run.run}: {run.tokens:,} tokens, normalised MSE {run.normalised_mse:.4f}" for run in result.runs]
    if result.kl_first is None or result.kl_last is None:
        return "\n".join(lines)
    nearer = f"KL from the untouched language model {result.kl_first:.4f} nats at first, {result.kl_last:.4f} at last"
    return "\n".join([*lines, nearer])
