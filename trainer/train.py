"""The one loop that fits a layer: activations in, a run directory and its metrics out."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import Engine

from trainer.activations import WindowPlan, batches
from trainer.config import TrainConfig
from trainer.errors import UserError
from trainer.files import only_one, whole_folder
from trainer.fitting import Fit, StepMeasures
from trainer.language_model import LanguageModel
from trainer.layers.sparse import CONFIG_FILE, WEIGHTS_FILE
from trainer.progress import Progress, ShouldStop, never, silent
from trainer.registration import enter, forget_metrics_after, metrics_of, write_metrics
from trainer.run import LOCK_FILE, RUN_FILE, Run, runs_folder
from trainer.store import MetricRecord, RunRecord, utc_now, writing

Resume = Literal["never", "if-any"]


@dataclass(frozen=True)
class TrainResult:
    """What ``mxd train`` reports."""

    run: str
    status: Literal["finished", "stopped"]
    tokens: int
    normalised_mse: float
    dead_share: float
    tokens_per_second: float


def train(
    config: TrainConfig,
    data: Path,
    store: Engine,
    language_model: LanguageModel,
    *,
    resume: Resume = "never",
    progress: Progress = silent,
    should_stop: ShouldStop = never,
) -> TrainResult:
    """Fit a layer, or go on fitting it, until its tokens are spent or ``should_stop`` says so.

    Raises:
        UserError: the run exists (and ``resume`` is ``never``), is being fitted elsewhere, was fitted with other
            settings, or the text is too short.
    """
    folder = runs_folder(data) / config.name
    with only_one(folder / LOCK_FILE, f"The run {config.name} is being fitted"):
        run = _open_run(config, data, language_model, resume)
        loop = _Loop(run, store, language_model)
        try:
            return loop.go(progress, should_stop)
        except UserError as error:
            loop.mark("failed", str(error))
            raise


def _open_run(config: TrainConfig, data: Path, language_model: LanguageModel, resume: Resume) -> Run:
    language_model.mlp_shape(config.layer)  # says so at once where there is no such layer
    if not (runs_folder(data) / config.name / RUN_FILE).is_file():
        return Run.create(config, data, language_model.tokenizer)
    if resume == "never":
        raise UserError(f"The run {config.name} exists; go on with --resume, or choose another --name.")
    run = Run.load(config.name, data)
    differing = [name for name in TrainConfig.model_fields if getattr(run.config, name) != getattr(config, name)]
    if differing:
        raise UserError(
            f"The run {config.name} was started with another {', '.join(differing)}; resume it with the same settings "
            f"({run.resume_command()}), or choose another --name."
        )
    return run


class _Loop:
    """Fits one run and keeps the store and the checkpoints up to date."""

    def __init__(self, run: Run, store: Engine, language_model: LanguageModel) -> None:
        self.run = run
        self.store = store
        self.language_model = language_model
        self.plan = WindowPlan.of(run.config)
        self.fit = Fit.start(run.config, language_model, self.plan.steps)
        checkpoint = run.last_checkpoint()
        if checkpoint is not None:
            self.fit.restore(checkpoint, self.plan.batch)
        self.first_step = self.fit.taken
        self.started = time.monotonic()
        self.run_id = self._register()
        self.last = self._last_measures()

    def go(self, progress: Progress, should_stop: ShouldStop) -> TrainResult:
        """Take the steps that are left."""
        every = max(1, self.run.config.checkpoint_every // self.plan.batch)
        for batch in batches(self.language_model, self.run.config, self.fit.taken):
            self.fit.step(batch)
            if self.fit.taken % self.run.config.log_every == 0 or self.fit.taken == self.plan.steps:
                self._log()
            progress(self.fit.tokens, self.plan.tokens, self._note())
            if should_stop():
                return self._leave("stopped")
            if self.fit.taken % every == 0 and self.fit.taken < self.plan.steps:
                self.fit.save(self.run.folder, self.seconds)
        return self._leave("finished")

    @property
    def seconds(self) -> float:
        """Spent fitting, over all resumptions."""
        return self.fit.seconds_before + time.monotonic() - self.started

    @property
    def tokens_per_second(self) -> float:
        """Of this process, the language model's work included."""
        taken = (self.fit.taken - self.first_step) * self.plan.batch
        return taken / max(time.monotonic() - self.started, 1e-9)

    def _note(self) -> str:
        measured = not math.isnan(self.last.normalised_mse)
        return f"normalised MSE {self.last.normalised_mse:.4f}" if measured else ""

    def mark(self, status: str, error: str | None = None) -> None:
        """Tell the store how the run stands."""
        with writing(self.store) as session:
            record = session.get_one(RunRecord, self.run_id)
            record.status, record.error, record.updated_at = status, error, utc_now()
            record.tokens_done = self.fit.tokens

    def _leave(self, status: Literal["finished", "stopped"]) -> TrainResult:
        if self.fit.watch.steps:
            self._log()
        self.fit.save(self.run.folder, self.seconds)
        if status == "finished":
            self._publish()
        self.mark(status)
        return TrainResult(
            run=self.run.name,
            status=status,
            tokens=self.fit.tokens,
            normalised_mse=self.last.normalised_mse,
            dead_share=self.last.dead_share,
            tokens_per_second=self.tokens_per_second,
        )

    def _publish(self) -> None:
        """Put the finished layer beside the settings; its config comes last, so a reader finds both or neither."""
        partial = self.run.folder / "finished"
        with whole_folder(partial) as folder:
            self.fit.layer.save(folder)
        (partial / CONFIG_FILE).replace(self.run.folder / CONFIG_FILE)
        (partial / WEIGHTS_FILE).replace(self.run.folder / WEIGHTS_FILE)
        partial.rmdir()
        write_metrics(self.run, metrics_of(self.store, self.run_id))

    def _log(self) -> None:
        self.last = self.fit.read()
        with writing(self.store) as session:
            session.merge(
                MetricRecord(
                    run_id=self.run_id,
                    step=self.fit.taken,
                    tokens=self.fit.tokens,
                    tokens_per_second=self.tokens_per_second,
                    seconds=self.seconds,
                    **self.last._asdict(),
                )
            )
            record = session.get_one(RunRecord, self.run_id)
            record.tokens_done, record.updated_at = self.fit.tokens, utc_now()

    def _last_measures(self) -> StepMeasures:
        """Those of the last logged step before this process, for a run that is resumed with nothing left to do."""
        metrics = metrics_of(self.store, self.run_id)
        if not metrics:
            return StepMeasures(float("nan"), float("nan"), float("nan"), float("nan"))
        last = metrics[-1]
        return StepMeasures(last.normalised_mse, last.l0, last.largest_usage, last.dead_share)

    def _register(self) -> int:
        with writing(self.store) as session:
            record = enter(session, self.run, self.fit.layer, self.plan.tokens)
            record.tokens_done = self.fit.tokens
            forget_metrics_after(session, record, self.fit.taken)
            return record.id
