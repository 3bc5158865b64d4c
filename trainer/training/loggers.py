"""Loggers for training metrics: TensorBoard, Trackio and Weights & Biases."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from mxd.trainer.config.training import TrainConfig
from mxd.trainer.storage.run import RUN_FILE
from mxd.trainer.utils.files import explained

LogName = Literal["tensorboard", "trackio", "wandb"]
PROJECT = "mxd-explorer"
FOLDER = "tensorboard"
"""Folder of the event files, in the run's."""


@dataclass(frozen=True)
class MetricLog:
    write: Callable[[int, Mapping[str, float]], object]
    """Logs the metrics of a step, in the units of ``mxd.trainer.storage.database.tables.MetricRecord``."""
    close: Callable[[], object]


OpenLog = Callable[[TrainConfig, Path, int], MetricLog]
"""Opens the log of a run in its folder. The number is the step from which the run resumes; 0 for a new run."""


def no_log(_config: TrainConfig, _folder: Path, _step: int) -> MetricLog:
    """Open no log: the metrics are only in the database."""
    return MetricLog(write=lambda _step, _metrics: None, close=lambda: None)


def _open_tensorboard(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Open event files in the run's folder; ``tensorboard --logdir data/runs`` shows all runs. Events after ``step``
    are purged, because their steps will be repeated."""
    from torch.utils.tensorboard.writer import SummaryWriter

    writer = SummaryWriter(str(folder / FOLDER), purge_step=step + 1 if step else None)
    if step == 0:
        writer.add_text("settings", f"```json\n{config.model_dump_json(indent=1)}\n```")

    def write(step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(f"train/{name}", value, step)

    return MetricLog(write, writer.close)


def _open_trackio(config: TrainConfig, _folder: Path, step: int) -> MetricLog:
    """Start a run in Trackio's local dashboard (``trackio show``), which needs no account, or resume it."""
    import trackio

    settings = config.model_dump(mode="json")
    run = trackio.init(project=PROJECT, name=config.name, config=settings, resume="allow" if step else "never")
    return MetricLog(lambda step, metrics: run.log(dict(metrics), step=step), run.finish)


def _open_wandb(config: TrainConfig, folder: Path, _step: int) -> MetricLog:
    """Start a W&B run, or resume it. ``WANDB_PROJECT`` and ``WANDB_MODE`` set the project and the mode. W&B resumes by
    id, in which the creation time distinguishes a removed run of the same name."""
    import wandb

    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=config.name,
        id=f"{config.name}-{int((folder / RUN_FILE).stat().st_mtime)}",
        resume="allow",
        reinit="create_new",
        dir=folder,
        config=config.model_dump(mode="json"),
    )
    return MetricLog(lambda step, metrics: run.log(dict(metrics), step=step), run.finish)


def log_to(name: LogName) -> OpenLog:
    """Return the function that opens a log of this kind. Raises UserError if the package is not installed."""
    message = f"{name} is not installed. Run pip install 'mxd-explorer[{name}]', or leave out --log."
    with explained(message, ImportError):
        import_module("torch.utils.tensorboard.writer" if name == "tensorboard" else name)
    return {"tensorboard": _open_tensorboard, "trackio": _open_trackio, "wandb": _open_wandb}[name]
