"""Loggers for training metrics: TensorBoard, Trackio and Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

from mxd.trainer.config import TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.storage.run import RUN_FILE

LogName = Literal["tensorboard", "trackio", "wandb"]
PROJECT = "mxd-explorer"
"""Default project name."""
FOLDER = "tensorboard"
"""Folder of the event files, in the run's."""


class MetricLog(Protocol):
    """Log of one run."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step, in the units of ``mxd.trainer.storage.run_records.Metric``."""

    def close(self) -> None:
        """Flush and close the log."""


class OpenLog(Protocol):
    """Function that opens a log."""

    def __call__(self, config: TrainConfig, folder: Path, step: int) -> MetricLog:
        """Open the log of a run in ``folder``. ``step`` is the step from which the run resumes; 0 for a new run."""


class _NoLog:
    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def no_log(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Open no log: the metrics are only in the database."""
    del config, folder, step
    return _NoLog()


class _EventFiles:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(f"train/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


def _open_tensorboard(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Open event files in the run's folder; ``tensorboard --logdir data/runs`` shows all runs. Events after ``step``
    are purged, because their steps will be repeated."""
    from torch.utils.tensorboard.writer import SummaryWriter

    writer = SummaryWriter(str(folder / FOLDER), purge_step=step + 1 if step else None)
    if step == 0:
        writer.add_text("settings", f"```json\n{config.model_dump_json(indent=1)}\n```")
    return _EventFiles(writer)


class _RemoteRun:
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def _open_trackio(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Start a run in Trackio's local dashboard (``trackio show``), which needs no account, or resume it."""
    import trackio

    del folder
    settings = config.model_dump(mode="json")
    return _RemoteRun(
        trackio.init(project=PROJECT, name=config.name, config=settings, resume="allow" if step else "never")
    )


def _open_wandb(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Start a W&B run, or resume it. ``WANDB_PROJECT`` and ``WANDB_MODE`` set the project and the mode."""
    import wandb

    del step  # W&B resumes by id, in which the creation time distinguishes a removed run of the same name
    return _RemoteRun(
        wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=config.name,
            id=f"{config.name}-{int((folder / RUN_FILE).stat().st_mtime)}",
            resume="allow",
            reinit="create_new",
            dir=folder,
            config=config.model_dump(mode="json"),
        )
    )


_OPENERS: Mapping[LogName, OpenLog] = {
    "tensorboard": _open_tensorboard,
    "trackio": _open_trackio,
    "wandb": _open_wandb,
}


def log_to(name: LogName) -> OpenLog:
    """Return the function that opens a log of this kind.

    Raises:
        UserError: the package is not installed.
    """
    try:
        import_module("torch.utils.tensorboard.writer" if name == "tensorboard" else name)
    except ImportError as error:
        raise UserError(
            f"{name} is not installed. Run pip install 'mxd-explorer[{name}]', or choose another logger."
        ) from error
    return _OPENERS[name]
