"""Training of real layers: several on one stream, for as many tokens as the time allows, resumed from call to call."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchmarks.gpu.pack import Pack
from benchmarks.gpu.sections import Point, Setting, earlier
from benchmarks.gpu.weights import compact, expand, load_parts, save_parts
from mxd.trainer.config import LayerConfig, OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.loading import choose_device
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import load_tokenizer
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import Metric, metrics_of, register_run, write_metrics
from mxd.trainer.training.checkpoint import LAST_ACTIVE, OPTIMIZER_FILE, Position, save_checkpoint
from mxd.trainer.training.planning.dtypes import fastest_dtype, with_dtype
from mxd.trainer.training.train import train_layers
from mxd.trainer.utils.callbacks import Callbacks

PACE_SECONDS, TINY_PACE_SECONDS = 20.0, 0.2
"""Time of the trial that measures the throughput."""
EXPORT_SECONDS = 25.0
"""Time kept for checkpoints and files at the end."""
SHARE_OF_PACE = 0.93
"""Share of the measured throughput that is planned with, so that the learning rate reaches zero in time."""
BATCH_TOKENS = 2048
TINY_RATE = 1e-3
"""Learning rate of the rehearsal, whose model has random weights."""
SECTION = "training"


@dataclass(frozen=True)
class _Job:
    """Runs to train, and where."""

    configs: tuple[TrainConfig, ...]
    data: Path
    database: Engine
    language_model: LanguageModel

    def train(self, setting: Setting, configs: Sequence[TrainConfig]) -> None:
        """Train until all tokens are used or the time is over."""
        reserve = 0.0 if setting.tiny else EXPORT_SECONDS
        callbacks = Callbacks(is_cancelled=lambda: setting.left < reserve)
        train_layers(configs, self.data, self.database, self.language_model, resume="if-any", callbacks=callbacks)


def training_points(setting: Setting) -> Iterator[Point]:
    """Yield the plan, then the result of each layer, with the names of its files in the output folder."""
    pack = Pack.open(setting.pack)
    device = choose_device(setting.device)
    # The width decides the dtype only on a CPU.
    language_model = LanguageModel.load(pack.language_model, setting.device, fastest_dtype(device, 1 << 12))
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        before = earlier(setting.resume_from).get(SECTION)
        plan = next((it for it in before.points if "planned_tokens" in it), None) if before else None
        if plan is None:
            plan = _plan(pack, language_model, setting, data / "trial")
        yield plan
        configs = _configs(pack, language_model, setting, int(plan["planned_tokens"]))
        database = open_trainer_database(sqlite_url(data))
        job = _Job(configs, data, database, language_model)
        if setting.resume_from is not None and before is not None:
            _restore(job, setting.resume_from, before.points)
        started = time.time()
        job.train(setting, configs)
        yield {"trained_for_seconds": time.time() - started}
        for config in configs:
            earlier_point = _point_of(config.name, before.points if before else ())
            yield _export(Run.load(config.name, data), database, setting.out, earlier_point.get("metrics", []))
        database.dispose()


def _configs(pack: Pack, language_model: LanguageModel, setting: Setting, tokens: int) -> tuple[TrainConfig, ...]:
    recipe = pack.recipe
    configs = (
        TrainConfig(
            name=f"layer-{layer}",
            language_model=pack.language_model,
            layer=layer,
            text=TextConfig(dataset=pack.text, on_short_text="repeat"),
            tokens=tokens,
            num_experts=64 if setting.tiny else recipe.num_experts,
            k=4 if setting.tiny else recipe.k,
            optimizer=OptimizerConfig(batch_tokens=BATCH_TOKENS, learning_rate=TINY_RATE if setting.tiny else None),
            checkpoint_every=10**12,
        )
        for layer in recipe.layers
    )
    return tuple(with_dtype(config, language_model.dtype) for config in configs)


def _plan(pack: Pack, language_model: LanguageModel, setting: Setting, trial: Path) -> Point:
    """Tokens of the recipe, or as many as the time allows at the throughput of a short trial."""
    if pack.recipe.tokens is not None:
        return {"planned_tokens": pack.recipe.tokens}
    pace = _pace(pack, language_model, setting, trial)
    reserve = 0.0 if setting.tiny else EXPORT_SECONDS
    batch = 2048
    return {
        "planned_tokens": max(batch, int(SHARE_OF_PACE * pace * max(0.0, setting.left - reserve)) // batch * batch),
        "trial_tokens_per_second": pace,
    }


def _pace(pack: Pack, language_model: LanguageModel, setting: Setting, trial: Path) -> float:
    """Tokens per second of a short training in a folder of its own."""
    seconds = TINY_PACE_SECONDS if setting.tiny else PACE_SECONDS
    seen: list[tuple[float, int]] = []
    callbacks = Callbacks(
        on_progress=lambda done, _total, _note: seen.append((time.time(), done)),
        is_cancelled=lambda: len(seen) > 1 and seen[-1][0] - seen[0][0] > seconds,
    )
    trial.mkdir(parents=True)
    database = open_trainer_database(sqlite_url(trial))
    train_layers(_configs(pack, language_model, setting, 10**12), trial, database, language_model, callbacks=callbacks)
    database.dispose()
    (first_time, first), (last_time, last) = seen[0], seen[-1]
    return (last - first) / (last_time - first_time)


def _export(run: Run, database: Engine, out: Path, earlier_metrics: list[dict[str, Any]]) -> Point:
    """Write the files of a run and return what describes them."""
    weights, moments, last_active_N, step = _state(run)
    files = save_parts(compact(weights, moments) | {LAST_ACTIVE: last_active_N.int()}, out, run.name)
    with Session(database) as session:
        record = session.scalars(select(RunRecord).where(RunRecord.name == run.name)).one()
        run_id, status, tokens = record.id, record.status, record.trained_tokens
    metrics = metrics_of(database, run_id)
    return {
        "run": run.name,
        "status": status,
        "tokens": tokens,
        "step": step,
        "normalized_mse": metrics[-1].normalized_mse if metrics else None,
        "files": files,
        "config": run.config.model_dump(mode="json"),
        "layer_config": run.layer_config.model_dump(mode="json"),
        "metrics": [*earlier_metrics, *(asdict(metric) for metric in metrics[:: max(1, len(metrics) // 200)])],
    }


def _state(run: Run) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], torch.Tensor, int]:
    """Weights, optimizer state, last activations and step of the newest checkpoint."""
    from safetensors.torch import load_file

    checkpoint = run.last_checkpoint()
    assert checkpoint is not None, "training always ends with a checkpoint"
    moments = load_file(checkpoint / OPTIMIZER_FILE)
    last_active_N = moments.pop(LAST_ACTIVE)
    step = int(checkpoint.name.rpartition("-")[2])
    return dict(run.layer.state_dict()), moments, last_active_N, step


def _point_of(name: str, points: Sequence[Point]) -> Point:
    """Result of a run in an earlier call; empty if there is none."""
    return next((point for point in points if point.get("run") == name), {})


def _restore(job: _Job, folder: Path, points: Sequence[Point]) -> None:
    """Write checkpoints from the files of an earlier call."""
    for config in job.configs:
        point, stored = _point_of(config.name, points), load_parts(folder, config.name)
        if not point or not stored:
            continue
        run = Run.create(config, job.data, job.language_model.tokenizer)
        last_active_N = stored.pop(LAST_ACTIVE).long()
        weights, moments = expand(stored)
        layer = build_layer(LayerConfig.model_validate(point["layer_config"]))
        layer.load_state_dict(weights)
        save_checkpoint(run.folder, layer, moments, last_active_N, Position(int(point["step"]), 0.0))


def collect(folder: Path, data: Path, database: Engine, language_model: str, text: str) -> list[str]:
    """Register the finished layers of a GPU run as runs of a data folder; returns their names.

    Args:
        folder: output of the GPU run.
        data: data folder.
        database: its database.
        language_model: the whole language model, for the runs' settings.
        text: the text, for the runs' settings.

    Raises:
        UserError: there is no finished layer.
    """
    outcome = earlier(folder).get(SECTION)
    finished = [it for it in (outcome.points if outcome else []) if it.get("status") == "finished"]
    if not finished:
        raise UserError(f"No finished layer in {folder}. Continue the GPU run with --resume-from {folder}.")
    return [_collected(folder, it, data, database, language_model, text) for it in finished]


def _collected(
    folder: Path, point: dict[str, Any], data: Path, database: Engine, language_model: str, text: str
) -> str:
    config = TrainConfig.model_validate_json(json.dumps(point["config"]))
    named = config.text.model_copy(update={"dataset": text})
    config = config.model_copy(update={"language_model": language_model, "text": named})
    run = Run.create(config, data, load_tokenizer(language_model))
    stored = load_parts(folder, config.name)
    stored.pop(LAST_ACTIVE)
    layer = build_layer(LayerConfig.model_validate(point["layer_config"]))
    layer.load_state_dict(expand(stored)[0])
    write_metrics(run, [Metric(**values) for values in point["metrics"]])
    layer.save(run.folder)
    register_run(run, database)
    return run.name
