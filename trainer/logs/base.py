"""What a place for metrics must be able to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from trainer.config import TrainConfig

LogName = Literal["tensorboard", "trackio", "wandb"]
PROJECT = "mxd-explorer"
"""Name under which places that know projects gather the runs."""


class MetricLog(Protocol):
    """Takes the metrics of one run."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take what was measured at a step; units as in ``trainer.registration.Metric``."""

    def close(self) -> None:
        """Send or write what is left. Nothing is written afterwards."""


class OpenLog(Protocol):
    """Begins a log."""

    def __call__(self, config: TrainConfig, folder: Path, step: int) -> MetricLog:
        """``config`` of the run, ``folder`` of the run, ``step`` that it goes on from: 0 for a new one."""


class _Nowhere:
    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep nothing: the store has it anyway."""

    def close(self) -> None:
        """Nothing is open."""


def no_log(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Metrics go to the store alone."""
    del config, folder, step
    return _Nowhere()
