"""Weights & Biases. ``WANDB_PROJECT`` and ``WANDB_MODE`` set the project and the mode."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from mxd.trainer.config import TrainConfig
from mxd.trainer.storage.run import RUN_FILE
from mxd.trainer.training.loggers import PROJECT, MetricLog


class _WandbRun:
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def _created_at(folder: Path) -> int:
    """Creation time of the run, which distinguishes it from a removed run with the same name."""
    return int((folder / RUN_FILE).stat().st_mtime)


def open_log(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Start a W&B run with the run's name, or resume it."""
    del step  # W&B resumes by id
    return _WandbRun(
        wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=config.name,
            id=f"{config.name}-{_created_at(folder)}",
            resume="allow",
            reinit="create_new",
            dir=folder,
            config=config.model_dump(mode="json"),
        )
    )
