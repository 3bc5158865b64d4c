"""Weights & Biases. Account, project (``WANDB_PROJECT``) and mode (``WANDB_MODE``) are its own settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from trainer.config import TrainConfig
from trainer.logs.base import PROJECT, MetricLog
from trainer.run import RUN_FILE


class _WandbRun:
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def _stamp(folder: Path) -> int:
    """When the run was made: another one of this name, after the first was removed, is another run there too."""
    return int((folder / RUN_FILE).stat().st_mtime)


def open_log(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Begin a run of the same name, or go on with it from ``step``. Runs that are fitted together each have one."""
    del step  # it is told apart by its id
    return _WandbRun(
        wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=config.name,
            id=f"{config.name}-{_stamp(folder)}",
            resume="allow",
            reinit="create_new",
            dir=folder,
            config=config.model_dump(mode="json"),
        )
    )
