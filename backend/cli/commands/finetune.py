"""``mxd finetune``: runs of several layers trained jointly, end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from mxd.backend.cli.base import FlagsOf, ModelCommand, Positional
from mxd.backend.cli.console import Interrupted, StopRequest, progress
from mxd.backend.cli.parser import nest, validate
from mxd.trainer.config.training import PLACE, FinetuneConfig
from mxd.trainer.utils.callbacks import Callbacks

if TYPE_CHECKING:
    from mxd.trainer.storage.run import Run


class FinetuneCommand(ModelCommand):
    """Fine-tune runs of several layers jointly, end to end, with a KL loss against the original model.

    New runs are written. The named runs stay unchanged.
    """

    examples: ClassVar = (
        "mxd finetune l0 l1 l2 --dataset corpus.jsonl --tokens 2M",
        "mxd finetune l0 l1 l2 --dataset corpus.jsonl --tokens 2M --name '{run}-joint' --next-token-weight 0.1",
        "mxd finetune l0 l1 l2 --resume",
    )
    groups: ClassVar = """
    model and data: name dataset column split tokens context-length on-short-text start-token
    optimizer: learning-rate warmup-ratio decay-ratio batch-tokens next-token-weight seed
    checkpoints and logging: resume checkpoint-every log-every
    hardware: device
    """

    names: Positional[list[str]]
    """Names or folders of the runs. All must belong to the same language model and to different layers."""
    flags: Annotated[dict[str, Any], FlagsOf(FinetuneConfig, without=frozenset({"buffer_tokens"}), optional=True)] = (
        Field(default_factory=dict)
    )
    resume: bool = False
    """Resume the new runs if they exist. With --name alone, their own settings are used."""

    def run(self) -> int:
        data, runs = self.settings().data, self.load_runs(self.names)
        config = self.config(runs, data)
        from mxd.trainer.training.finetune import finetune, new_run_configs
        from mxd.trainer.utils.memory import keep_freed_memory

        new_run_configs(runs, config)  # reports invalid settings before anything large is loaded
        keep_freed_memory()
        stop = StopRequest()
        title = f"Fine-tuning {len(runs)} runs"
        with self.opened() as database, stop.listening(), progress(title) as show:
            result = finetune(
                runs,
                config,
                data,
                database,
                self.load_language_model(runs[0].language_model_source),
                resume="if-any" if self.resume else "never",
                callbacks=Callbacks(show, stop),
            )
        lines = [f"{run.run}: {run.tokens:,} tokens, normalised MSE {run.normalized_mse:.4f}" for run in result.runs]
        if result.kl_first is not None and result.kl_last is not None:
            change = f"{result.kl_first:.4f} nats at first, {result.kl_last:.4f} at last"
            lines.append(f"KL divergence from the original model: {change}")
        self.report(asdict(result), "\n".join(lines))
        if all(run.status == "finished" for run in result.runs):
            return 0
        raise Interrupted("Stopped. To continue, run the same command with --resume.", stop.exit_code)

    def config(self, runs: Sequence[Run], data: Path) -> FinetuneConfig:
        """Return the settings given, on top of those of the runs to resume. Raises UserError if a flag is missing or
        invalid."""
        given = nest(FinetuneConfig, self.flags)
        saved = self._saved(runs, data) if self.resume else {}
        trained = runs[0].config.text.model_dump(include={"context_length", "start_token"})
        text = saved.get("text", trained) | given["text"]
        explicit = {name: value for name, value in given["optimizer"].items() if name in self.flags}
        optimizer = given["optimizer"] | saved.get("optimizer", {}) | explicit
        values = {**saved, **given, "text": text, "optimizer": optimizer}
        return validate(FinetuneConfig, values, type(self), "mxd finetune")

    def _saved(self, runs: Sequence[Run], data: Path) -> dict[str, Any]:
        """Return the settings of the new runs, taken from the first one, or nothing if they do not exist yet."""
        from mxd.trainer.storage.run import RUN_FILE, Run, runs_folder

        pattern: str = self.flags.get("name") or FinetuneConfig.model_fields["name"].default
        folder = runs_folder(data) / pattern.replace(PLACE, runs[0].name)
        if not (folder / RUN_FILE).is_file():
            return {}
        config = Run.load(folder, data).config
        saved = {name: value for name, value in config.model_dump().items() if name in FinetuneConfig.model_fields}
        return {**saved, "seed": config.order_seed, "name": pattern}
