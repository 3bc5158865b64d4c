"""A run while it is fitted: its layer, its checkpoints, and its record in the store."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import Engine
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from trainer.activations import WindowPlan
from trainer.config import TrainConfig
from trainer.errors import UserError
from trainer.files import whole_folder
from trainer.fitting import Fit, StepMeasures
from trainer.language_model import Capture, LanguageModel
from trainer.layers.saved import CONFIG_FILE, WEIGHTS_FILE
from trainer.logs import OpenLog
from trainer.registration import enter, forget_metrics_after, metrics_of, write_metrics
from trainer.run import RUN_FILE, Run, checkpoints, runs_folder
from trainer.store import MetricRecord, RunRecord, utc_now, writing

Resume = Literal["never", "if-any"]


@dataclass(frozen=True)
class TrainResult:
    """What ``mxd train`` reports of a run."""

    run: str
    status: Literal["finished", "stopped"]
    tokens: int
    normalised_mse: float
    dead_share: float
    tokens_per_second: float
    """Of the stream; those that are fitted together share it."""


def refuse_others(config: TrainConfig, data: Path, resume: Resume) -> None:
    """See that a run is new, or may go on with these settings. One that failed before it had anything to keep is new.

    Raises:
        UserError: it exists and ``resume`` is ``never``, or it was started with other settings.
    """
    if not _is_begun(runs_folder(data) / config.name, data):
        return
    if resume == "never":
        raise UserError(f"The run {config.name} exists; go on with --resume, or choose another --name.")
    run = Run.load(runs_folder(data) / config.name, data)
    if run.config.origin is not None:
        raise UserError(f"The run {config.name} was imported and cannot be fitted further; choose another --name.")
    begun = run.config
    if begun.language_model_dtype is None:  # it was not written down yet
        begun = begun.model_copy(update={"language_model_dtype": config.language_model_dtype})
    differing = [name for name in TrainConfig.model_fields if getattr(begun, name) != getattr(config, name)]
    if differing:
        raise UserError(
            f"The run {config.name} was started with another {', '.join(differing)}; resume it with the same settings "
            f"({run.resume_command()}), or choose another --name."
        )


def _is_begun(folder: Path, data: Path) -> bool:
    return (folder / RUN_FILE).is_file() and Run.load(folder, data).is_begun


class DivergedError(UserError):
    """A layer's error is no number any more; no step will mend it."""

    def __init__(self, config: TrainConfig, step: int) -> None:
        super().__init__(
            f"The run {config.name} has diverged: at step {step:,} its error is no finite number any more. Fit it anew "
            f"under another --name, with a smaller --learning-rate than {config.optimizer.learning_rate:g}."
        )
        self.run = config.name


class OngoingRun:
    """Fits one run, batch by batch, and keeps its checkpoints and the store up to date."""

    def __init__(self, run: Run, fit: Fit, store: Engine, open_log: OpenLog) -> None:
        self.run = run
        self.fit = fit
        self.store = store
        self.plan = WindowPlan.of(run.config)
        self._restore()
        self.first_step = self.fit.taken
        self.started = time.monotonic()
        self.run_id = self._register()
        self.last = self._last_measures()
        self.log = open_log(run.config, run.folder, self.first_step)

    @classmethod
    def open(
        cls, config: TrainConfig, fit: Fit, data: Path, store: Engine, language_model: LanguageModel, log: OpenLog
    ) -> OngoingRun:
        """Make the run's directory, or take it up again where its last checkpoint was."""
        folder = runs_folder(data) / config.name
        run = Run.load(folder, data) if _is_begun(folder, data) else Run.create(config, data, language_model.tokenizer)
        return cls(run, fit, store, log)

    def _restore(self) -> None:
        """Go on from the newest checkpoint that can be read; one that cannot is passed over for the one before."""
        damaged: UserError | None = None
        for checkpoint in checkpoints(self.run.folder):
            try:
                self.fit.restore(checkpoint, self.plan.batch)
            except UserError as error:
                damaged = damaged or error
                continue
            return
        if damaged is not None:
            raise damaged

    def step(self, batch: Capture) -> None:
        """Take one step, and log it where that is due.

        Raises:
            DivergedError: what is to be logged is no finite number.
        """
        self.fit.step(batch)
        self.log_if_due()

    def log_if_due(self) -> None:
        """Log the step that was just taken, as often as the settings say.

        Raises:
            DivergedError: what is to be logged is no finite number.
        """
        if self.fit.taken % self.run.config.log_every == 0 or self.fit.taken == self.plan.steps:
            self._log()

    @property
    def is_done(self) -> bool:
        """Whether every step has been taken."""
        return self.fit.taken >= self.plan.steps

    @property
    def checkpoint_steps(self) -> int:
        """Steps between checkpoints."""
        return max(1, self.run.config.checkpoint_every // self.plan.batch)

    def save_if_due(self) -> None:
        """Write a checkpoint as often as the settings say."""
        if self.fit.taken % self.checkpoint_steps == 0 and not self.is_done:
            self.fit.save(self.run.folder, self.seconds)

    def leave(self) -> TrainResult:
        """Save what there is, and publish the layer where every step has been taken."""
        status: Literal["finished", "stopped"] = "finished" if self.is_done else "stopped"
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

    def mark(self, status: str, error: str | None = None) -> None:
        """Tell the store how the run stands, now that it is left."""
        self.log.close()
        with writing(self.store) as session:
            record = session.get_one(RunRecord, self.run_id)
            record.status, record.error, record.updated_at = status, error, utc_now()
            record.tokens_done = self.fit.tokens

    @property
    def seconds(self) -> float:
        """Spent fitting, over all resumptions."""
        return self.fit.seconds_before + time.monotonic() - self.started

    @property
    def tokens_per_second(self) -> float:
        """Of this process, the language model's work included."""
        taken = (self.fit.taken - self.first_step) * self.plan.batch
        return taken / max(time.monotonic() - self.started, 1e-9)

    def _publish(self) -> None:
        """Put the finished layer beside the settings; its config comes last, so a reader finds both or neither."""
        whole = self.fit.layer.whole()
        if not self.fit.ranks.is_first:
            return
        partial = self.run.folder / "finished"
        with whole_folder(partial) as folder:
            whole.save(folder)
        (partial / CONFIG_FILE).replace(self.run.folder / CONFIG_FILE)
        (partial / WEIGHTS_FILE).replace(self.run.folder / WEIGHTS_FILE)
        partial.rmdir()
        write_metrics(self.run, metrics_of(self.store, self.run_id))

    def _log(self) -> None:
        measures = self.fit.read()
        if not math.isfinite(measures.normalised_mse):
            raise DivergedError(self.run.config, self.fit.taken)
        self.last = measures
        pace = {"tokens_per_second": self.tokens_per_second, "seconds": self.seconds}
        metrics = {"tokens": self.fit.tokens, **pace, **self.last._asdict(), **self._ranks()}
        self.log.write(self.fit.taken, metrics)
        with writing(self.store) as session:
            session.merge(MetricRecord(run_id=self.run_id, step=self.fit.taken, **metrics))
            record = session.get_one(RunRecord, self.run_id)
            record.tokens_done, record.updated_at = self.fit.tokens, utc_now()

    def _ranks(self) -> dict[str, float]:
        """Measured once between checkpoints, and at the end: to take a matrix apart takes longer than a step."""
        now, before = self.fit.taken, self.fit.taken - self.run.config.log_every
        if before > 0 and now // self.checkpoint_steps == before // self.checkpoint_steps and not self.is_done:
            return {}
        try:
            found = self.fit.ranks_of_experts()
        except LinAlgError as error:  # the last step alone has gone wrong
            raise DivergedError(self.run.config, self.fit.taken) from error
        return {} if found is None else asdict(found)

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
