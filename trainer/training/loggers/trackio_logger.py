"""Trackio: a local dashboard (``trackio show``) like Weights & Biases, without an account."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trackio

from mxd.trainer.config import TrainConfig
from mxd.trainer.training.loggers import PROJECT, MetricLog


class _TrackioRun:
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def open_log(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Start a Trackio run with the run's name, or resume it."""
    del folder
    settings = config.model_dump(mode="json")
    return _TrackioRun(
        trackio.init(project=PROJECT, name=config.name, config=settings, resume="allow" if step else "never")
    )
