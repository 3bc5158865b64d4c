"""TensorBoard event files in the run's folder. ``tensorboard --logdir data/runs`` shows all runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch.utils.tensorboard.writer import SummaryWriter

from mxd.trainer.config import TrainConfig
from mxd.trainer.training.loggers import MetricLog

FOLDER = "tensorboard"


class _EventFiles:
    def __init__(self, writer: SummaryWriter) -> None:
        self._writer = writer

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(f"train/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


def open_log(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Open event files. Events after ``step`` are purged, because their steps will be repeated."""
    writer = SummaryWriter(str(folder / FOLDER), purge_step=step + 1 if step else None)
    if step == 0:
        writer.add_text("settings", f"```json\n{config.model_dump_json(indent=1)}\n```")
    return _EventFiles(writer)
