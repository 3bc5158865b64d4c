"""TensorBoard: event files in the run's own folder; ``tensorboard --logdir data/runs`` shows all runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch.utils.tensorboard.writer import SummaryWriter

from trainer.config import TrainConfig
from trainer.logs.base import MetricLog

FOLDER = "tensorboard"


class _EventFiles:
    def __init__(self, writer: SummaryWriter) -> None:
        self._writer = writer

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(f"fitting/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


def open_log(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Begin event files, or go on with them: what lies past ``step`` will be measured again."""
    writer = SummaryWriter(str(folder / FOLDER), purge_step=step + 1 if step else None)
    if step == 0:
        writer.add_text("settings", f"```json\n{config.model_dump_json(indent=1)}\n```")
    return _EventFiles(writer)
