"""Loggers for training metrics: TensorBoard, Trackio and Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol

from mxd.trainer.config import TrainConfig
from mxd.trainer.errors import UserError

LogName = Literal["tensorboard", "trackio", "wandb"]
PROJECT = "mxd-explorer"
"""Default project name."""


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


__all__ = ["LogName", "MetricLog", "OpenLog", "log_to", "no_log"]


def log_to(name: LogName) -> OpenLog:
    """Return the function that opens a log of this kind.

    Raises:
        UserError: the package is not installed.
    """
    try:
        module = import_module(f"mxd.trainer.training.loggers.{name}_logger")
    except ImportError as error:
        raise UserError(
            f"{name} is not installed. Run pip install 'mxd-explorer[{name}]', or leave out --log."
        ) from error
    open_log: OpenLog = module.open_log
    return open_log
