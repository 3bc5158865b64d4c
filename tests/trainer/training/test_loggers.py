"""Loggers: the same metrics as in the database, also after resuming; missing packages are reported."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.cli.main import run as mxd
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.tables import MetricRecord, RunRecord
from mxd.trainer.training.loggers import log_to
from mxd.trainer.training.train import train_layer, train_layers
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.language_models import saved_language_model
from tests.helpers.runs import World
from tests.trainer.training.test_train import StopAfter

AT_EVERY_STEP = {"tokens", "tokens_per_second", "seconds", "normalized_mse", "l0", "max_density", "dead_share"}
MEASURED = AT_EVERY_STEP | {"normalized_rank", "stable_rank", "min_singular_value", "min_scaling"}
"""The ranks are left out of some steps if they are slow beside the training."""


def stored(world: World, name: str) -> dict[int, float]:
    """Normalised MSE by step, from the database."""
    query = select(MetricRecord.step, MetricRecord.normalized_mse).join(RunRecord).where(RunRecord.name == name)
    with Session(world.database) as session:
        return {row.step: row.normalized_mse for row in session.execute(query)}


def events(world: World, name: str) -> dict[str, dict[int, float]]:
    """Scalars of a run as TensorBoard reads them, by metric and step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(world.data / "runs" / name / "tensorboard"))
    accumulator.Reload()
    return {
        tag: {event.step: event.value for event in accumulator.Scalars(tag)} for tag in accumulator.Tags()["scalars"]
    }


def test_tensorboard_has_the_metrics_of_the_database_also_after_resuming(world: World) -> None:
    arguments, log = (world.config(), world.data, world.database, world.language_model), log_to("tensorboard")
    assert train_layer(*arguments, log=log, callbacks=Callbacks(is_cancelled=StopAfter(10))).status == "stopped"
    train_layer(*arguments, log=log, resume="if-any")
    scalars = events(world, "small")
    assert scalars.keys() == {f"train/{name}" for name in MEASURED}
    assert scalars["train/normalized_mse"] == pytest.approx(stored(world, "small"), rel=1e-6)
    assert set(scalars["train/normalized_mse"]) >= {4, 8, 12, 16, 20, 24}


@dataclass
class FakeRun:
    """Records what a W&B or Trackio run receives."""

    settings: dict[str, Any]
    logged: dict[int, Mapping[str, float]] = field(default_factory=dict)
    finished: int = 0

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        assert not self.finished
        self.logged[step] = metrics

    def finish(self) -> None:
        self.finished += 1


def fake_module(name: str, monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """Replace the module by a fake. Returns the list of runs that it starts."""
    started: list[FakeRun] = []

    def init(**settings: Any) -> FakeRun:
        started.append(FakeRun(settings))
        return started[-1]

    module = ModuleType(name)
    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    return started


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_runs_trained_together_have_a_log_each(name: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    started = fake_module(name, monkeypatch)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    configs = [world.config(name="a"), world.config(name="b", k=2)]
    train_layers(configs, world.data, world.database, world.language_model, log=log_to(name))
    assert [run.settings["name"] for run in started] == ["a", "b"]
    for run, config in zip(started, configs, strict=True):
        assert {step: metrics["normalized_mse"] for step, metrics in run.logged.items()} == stored(world, config.name)
        assert {frozenset(metrics) for metrics in run.logged.values()} <= {
            frozenset(AT_EVERY_STEP),
            frozenset(MEASURED),
        }
        assert set().union(*run.logged.values()) == MEASURED
        assert run.settings["project"] == "mxd-explorer"
        assert run.settings["config"]["k"] == config.k
        assert run.finished == 1


def test_wandb_resumes_a_run_under_the_same_id_and_a_failed_one_closes_its_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = fake_module("wandb", monkeypatch)
    arguments, log = (world.config(), world.data, world.database, world.language_model), log_to("wandb")

    def enough(done: int, _total: int, _note: str) -> None:
        if done > 512:
            raise UserError("That was enough.")

    with pytest.raises(UserError, match="enough"):
        train_layer(*arguments, callbacks=Callbacks(on_progress=enough), log=log)
    train_layer(*arguments, log=log, resume="if-any")
    first, second = started
    assert first.settings["id"] == second.settings["id"]
    assert first.settings["id"].startswith("small-")
    assert min(second.logged) == 12
    assert (first.finished, second.finished) == (1, 1)


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb"])
def test_a_missing_package_is_reported_before_loading(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = "torch.utils.tensorboard.writer" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, missing, None)
    command = ["train", str(saved_language_model(tmp_path / "lm")), "--layer", "1", "--dataset", world.text.dataset]
    more = ["--tokens", "1536", "--context-length", "16", "--data", str(world.data), "--log", name]
    assert mxd([*command, *more]) == 2
    assert f"pip install 'mxd-explorer[{name}]'" in capsys.readouterr().err
    assert not (world.data / "runs").exists()
