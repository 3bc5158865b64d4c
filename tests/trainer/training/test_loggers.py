"""Loggers: the same metrics as in the database, also after resuming; missing packages are reported."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.cli.main import run as mxd
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.tables import MetricRecord, RunRecord
from mxd.trainer.training.loggers import log_to
from mxd.trainer.training.train import train_layer, train_layers
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.runs import World, saved_language_model, stop_after

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
    assert train_layer(*arguments, log=log, callbacks=stop_after(10)).status == "stopped"
    train_layer(*arguments, log=log, resume="if-any")
    scalars = events(world, "small")
    assert scalars.keys() == {f"train/{name}" for name in MEASURED}
    assert scalars["train/normalized_mse"] == pytest.approx(stored(world, "small"), rel=1e-6)
    assert set(scalars["train/normalized_mse"]) >= {4, 8, 12, 16, 20, 24}


def fake_module(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Mock]:
    """Replace the module by a fake. Returns the list of runs that it starts."""
    started: list[Mock] = []

    def init(**settings: Any) -> Mock:
        started.append(Mock(settings=settings))
        return started[-1]

    monkeypatch.setitem(sys.modules, name, Mock(init=init))
    return started


def logged(run: Mock) -> dict[int, dict[str, float]]:
    """Metrics by step of a log that was closed once, at its end."""
    *logs, last = run.mock_calls
    assert last == call.finish()
    return {each.kwargs["step"]: each.args[0] for each in logs}


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_runs_trained_together_have_a_log_each(name: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    started = fake_module(name, monkeypatch)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    configs = [world.config(name="a"), world.config(name="b", k=2)]
    train_layers(configs, world.data, world.database, world.language_model, log=log_to(name))
    assert [run.settings["name"] for run in started] == ["a", "b"]
    for run, config in zip(started, configs, strict=True):
        metrics_of = logged(run)
        assert {step: metrics["normalized_mse"] for step, metrics in metrics_of.items()} == stored(world, config.name)
        assert all(metrics.keys() in (AT_EVERY_STEP, MEASURED) for metrics in metrics_of.values())
        assert set().union(*metrics_of.values()) == MEASURED
        assert run.settings["project"] == "mxd-explorer"
        assert run.settings["config"]["k"] == config.k


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
    assert max(logged(first)) < min(logged(second)) == 12


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
