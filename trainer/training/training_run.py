"""A run during training: its layer, its checkpoints and its record in the database."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from sqlalchemy import Engine
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from mxd.trainer.config import TrainConfig
from mxd.trainer.config.training import GPU_BATCH, MatmulPrecision
from mxd.trainer.data.activations import BatchPlan
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.layers.files import CONFIG_FILE, WEIGHTS_FILE
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import MetricRecord, RunRecord, utc_now
from mxd.trainer.storage.run import RUN_FILE, Run, checkpoints, runs_folder
from mxd.trainer.storage.run_records import delete_metrics_after, enter, metrics_of, write_metrics
from mxd.trainer.training.layer_trainer import LayerTrainer, TrainMetrics, build_layer_config
from mxd.trainer.training.loggers import OpenLog
from mxd.trainer.training.matmul_precision import resolved_precision
from mxd.trainer.utils.files import atomic_directory

Resume = Literal["never", "if-any"]
LARGEST_SHARE = 0.05
"""Largest share of the training time for checkpoints, and for expert ranks."""
QUICK_SECONDS = 0.5
"""Duration up to which either may be as frequent as the settings say."""


@dataclass(frozen=True)
class TrainResult:
    """Result of training one run."""

    run: str
    status: Literal["finished", "stopped"]
    tokens: int
    normalized_mse: float
    """0 is a perfect layer; 1 is the score of predicting zero."""
    dead_share: float
    """Share of experts that were active on none of the last ``dead_after_tokens`` tokens."""
    dead_after_tokens: int
    routing_share: float | None
    """Routing share, measured on the outputs instead of the loss, on the last step's tokens; None if not measured: the
    run was stopped or its experts are sharded."""
    step_tokens: int
    """Number of tokens of a step."""
    tokens_per_second: float
    """Throughput of the pass over the text, which runs trained together share."""


def resolve_batch(config: TrainConfig, data: Path, device: torch.device) -> TrainConfig:
    """Fill in the tokens per step, if they were not chosen: those of the run that is resumed, or ``GPU_BATCH``."""
    if device.type == "cpu" or "batch_tokens" in config.optimizer.model_fields_set:
        return config
    batch_tokens = GPU_BATCH
    if _has_started(runs_folder(data) / config.name, data):
        batch_tokens = Run.load(runs_folder(data) / config.name, data).config.optimizer.batch_tokens
    optimizer = config.optimizer.model_copy(update={"batch_tokens": batch_tokens})
    return config.model_copy(update={"optimizer": optimizer})


def with_precision(config: TrainConfig, precision: MatmulPrecision) -> TrainConfig:
    """Set the precision of the layer's matrix products."""
    optimizer = config.optimizer.model_copy(update={"matmul_precision": precision})
    return config.model_copy(update={"optimizer": optimizer})


def resolve_precision(config: TrainConfig, data: Path, language_model: LanguageModel) -> TrainConfig:
    """Replace ``auto`` by the precision of the run that is resumed, or else by that of the layer's device."""
    precision = config.optimizer.matmul_precision
    if precision == "auto" and _has_started(runs_folder(data) / config.name, data):
        precision = Run.load(runs_folder(data) / config.name, data).config.optimizer.matmul_precision
    width = build_layer_config(config, language_model.architecture).input_width
    return with_precision(config, resolved_precision(precision, language_model.device_of(config.layer), width))


def check_resumable(config: TrainConfig, data: Path, resume: Resume) -> None:
    """Check that a run does not exist yet, or may be resumed with these settings.

    A run that failed before its first checkpoint counts as new.

    Raises:
        UserError: the run exists and ``resume`` is ``never``, or it was started with other settings.
    """
    if not _has_started(runs_folder(data) / config.name, data):
        return
    if resume == "never":
        raise UserError(f"Run '{config.name}' already exists. Use --resume to continue it or choose another --name.")
    run = Run.load(runs_folder(data) / config.name, data)
    saved = run.config
    if saved.origin is not None:
        raise UserError(f"Run '{config.name}' was imported and cannot be trained. Choose another --name.")
    if saved.language_model_dtype is None:  # stopped before the dtype was resolved
        saved = saved.model_copy(update={"language_model_dtype": config.language_model_dtype})
    if saved.optimizer.matmul_precision == "auto":  # stopped before the precision was resolved
        saved = with_precision(saved, config.optimizer.matmul_precision)
    if config.text.start_token is None:  # the run stores the one that was chosen
        saved = saved.model_copy(update={"text": saved.text.model_copy(update={"start_token": None})})
    differing = [name for name in TrainConfig.model_fields if getattr(saved, name) != getattr(config, name)]
    if differing:
        raise UserError(
            f"Run '{config.name}' was started with another {', '.join(differing)}. Resume it with the same settings "
            f"({run.resume_command()}), or choose another --name."
        )


def _has_started(folder: Path, data: Path) -> bool:
    return (folder / RUN_FILE).is_file() and Run.load(folder, data).has_started


class DivergedError(UserError):
    """The loss of a run is NaN or infinite."""

    def __init__(self, config: TrainConfig, step: int) -> None:
        super().__init__(
            f"Run '{config.name}' has diverged: the loss at step {step:,} is not finite. Train it again under another "
            f"--name, with a --learning-rate below {config.optimizer.learning_rate:g}."
        )
        self.run = config.name


class Occasional:
    """Work that repeats only after it has been a small share of the time: on a GPU, millions of tokens pass while a
    checkpoint is written. Quick work is always due."""

    def __init__(self) -> None:
        self._next = -math.inf

    @property
    def is_due(self) -> bool:
        """True if the work may repeat."""
        return time.monotonic() >= self._next

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Do the work inside the context, which decides when it is due again."""
        started = time.monotonic()
        yield
        ended = time.monotonic()
        if ended - started > QUICK_SECONDS:
            self._next = ended + (ended - started) / LARGEST_SHARE


class TrainingRun:
    """Trains one run batch by batch, and writes its checkpoints, log and database record."""

    def __init__(self, run: Run, trainer: LayerTrainer, database: Engine, open_log: OpenLog) -> None:
        self.run = run
        self.trainer = trainer
        self.database = database
        self.plan = BatchPlan.from_config(run.config)
        self._restore()
        self.first_step = trainer.step
        self.checkpointing, self.ranking = Occasional(), Occasional()
        self.started = time.monotonic()
        self.run_id = self._register()
        self.last = self._last_metrics()
        self.log = open_log(run.config, run.folder, self.first_step)

    @classmethod
    def open(
        cls, trainer: LayerTrainer, data: Path, database: Engine, language_model: LanguageModel, log: OpenLog
    ) -> TrainingRun:
        """Create the run's folder, or resume the run from its last checkpoint."""
        config = trainer.config
        folder = runs_folder(data) / config.name
        exists = _has_started(folder, data)
        run = Run.load(folder, data) if exists else Run.create(config, data, language_model.tokenizer)
        return cls(run, trainer, database, log)

    def _restore(self) -> None:
        """Load the newest checkpoint that is not damaged.

        Raises:
            UserError: all checkpoints are damaged.
        """
        first_error: UserError | None = None
        for checkpoint in checkpoints(self.run.folder):
            try:
                self.trainer.restore(checkpoint, self.plan.batch_tokens)
            except UserError as error:
                first_error = first_error or error
                continue
            return
        if first_error is not None:
            raise first_error

    def train_step(self, batch: MlpActivations) -> None:
        """Take one step, and log it if due.

        Raises:
            DivergedError: a logged metric is not finite.
        """
        self.trainer.train_step(batch)
        self.log_if_due()

    def log_if_due(self) -> None:
        """Log the metrics every ``log_every`` steps and after the last step.

        Raises:
            DivergedError: a logged metric is not finite.
        """
        if self.trainer.step % self.run.config.log_every == 0 or self.is_done:
            self._log()

    @property
    def is_done(self) -> bool:
        """True if all steps have been taken."""
        return self.trainer.step >= self.plan.steps

    @property
    def checkpoint_steps(self) -> int:
        """Number of steps between checkpoints."""
        return max(1, self.run.config.checkpoint_every // self.plan.batch_tokens)

    @property
    def needs_checkpoint(self) -> bool:
        """True every ``checkpoint_every`` tokens, unless checkpoints take too large a share of the time. Collective."""
        if self.trainer.step % self.checkpoint_steps or self.is_done:
            return False
        return not self.trainer.group.any(not self.checkpointing.is_due)  # each process measures another time

    def save(self) -> None:
        """Write a checkpoint. Collective."""
        with self.checkpointing.measured():
            self.trainer.save(self.run.folder, self.seconds)

    def close(self) -> TrainResult:
        """Write a checkpoint, and publish the layer if all steps have been taken."""
        status: Literal["finished", "stopped"] = "finished" if self.is_done else "stopped"
        if self.trainer.metrics.steps:
            self._log()
        self.trainer.save(self.run.folder, self.seconds)
        if status == "finished":
            self._publish()
        self.set_status(status)
        return TrainResult(
            run=self.run.name,
            status=status,
            tokens=self.trainer.tokens,
            normalized_mse=self.last.normalized_mse,
            dead_share=self.last.dead_share,
            dead_after_tokens=self.trainer.dead_after_tokens,
            routing_share=self.trainer.routing_share,
            step_tokens=self.plan.batch_tokens,
            tokens_per_second=self.tokens_per_second,
        )

    def set_status(self, status: str, error: str | None = None) -> None:
        """Close the log and write the final status to the database."""
        self.log.close()
        with writing(self.database) as session:
            record = session.get_one(RunRecord, self.run_id)
            record.status, record.error, record.updated_at = status, error, utc_now()
            record.trained_tokens = self.trainer.tokens

    @property
    def seconds(self) -> float:
        """Training time over all resumptions, in seconds."""
        return self.trainer.previous_seconds + time.monotonic() - self.started

    @property
    def tokens_per_second(self) -> float:
        """Throughput in this process, including the forward passes of the model."""
        tokens = (self.trainer.step - self.first_step) * self.plan.batch_tokens
        return tokens / max(time.monotonic() - self.started, 1e-9)

    def _publish(self) -> None:
        """Move the finished layer into the run folder. The weights come last, because they mark the run as finished."""
        layer = self.trainer.layer.unsharded()
        if not self.trainer.group.is_main:
            return
        partial = self.run.folder / "finished"
        with atomic_directory(partial) as folder:
            layer.save(folder)
        (partial / CONFIG_FILE).replace(self.run.folder / CONFIG_FILE)
        (partial / WEIGHTS_FILE).replace(self.run.folder / WEIGHTS_FILE)
        partial.rmdir()
        write_metrics(self.run, metrics_of(self.database, self.run_id))

    def _log(self) -> None:
        metrics = self.trainer.pop_metrics()
        if not math.isfinite(metrics.normalized_mse):
            raise DivergedError(self.run.config, self.trainer.step)
        self.last = metrics
        timing = {"tokens_per_second": self.tokens_per_second, "seconds": self.seconds}
        row = {"tokens": self.trainer.tokens, **timing, **metrics._asdict(), **self._expert_ranks()}
        self.log.write(self.trainer.step, row)
        with writing(self.database) as session:
            session.merge(MetricRecord(run_id=self.run_id, step=self.trainer.step, **row))
            record = session.get_one(RunRecord, self.run_id)
            record.trained_tokens, record.updated_at = self.trainer.tokens, utc_now()

    def _expert_ranks(self) -> dict[str, float]:
        """Expert ranks, at most once per checkpoint and at the end, because an SVD takes longer than a step."""
        step, previous = self.trainer.step, self.trainer.step - self.run.config.log_every
        is_first = previous <= 0 or step // self.checkpoint_steps != previous // self.checkpoint_steps
        if not (self.is_done or (is_first and self.ranking.is_due)):
            return {}
        try:
            with self.ranking.measured():
                ranks = self.trainer.expert_ranks()
        except LinAlgError as error:  # the last step made weights non-finite
            raise DivergedError(self.run.config, self.trainer.step) from error
        return {} if ranks is None else asdict(ranks)

    def _last_metrics(self) -> TrainMetrics:
        """Last logged metrics, for a run that is resumed with no steps left; NaN if there are none."""
        rows = metrics_of(self.database, self.run_id)
        if not rows:
            return TrainMetrics(*[math.nan] * len(TrainMetrics._fields))
        return TrainMetrics(*(getattr(rows[-1], name) for name in TrainMetrics._fields))

    def _register(self) -> int:
        with writing(self.database) as session:
            record = enter(session, self.run, self.trainer.layer, self.plan.tokens)
            record.trained_tokens = self.trainer.tokens
            delete_metrics_after(session, record, self.trainer.step)
            return record.id
