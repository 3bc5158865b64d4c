"""Metrics where people watch theirs: the same numbers as in the store, gone on with after a stop, asked for by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.cli import run as mxd
from tests.language_models import saved_language_model
from tests.runs import World, small_world
from trainer.errors import UserError
from trainer.logs import log_to
from trainer.store import MetricRecord, RunRecord
from trainer.train import train, train_together

MEASURED = {"tokens", "tokens_per_second", "seconds", "normalised_mse", "l0", "largest_usage", "dead_share"}
MEASURED |= {"normalised_rank", "stable_rank", "smallest_singular_value", "smallest_scaling"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return small_world(tmp_path)


def stored(world: World, name: str) -> dict[int, float]:
    """Step -> normalised MSE, as the store has it."""
    wanted = select(MetricRecord.step, MetricRecord.normalised_mse).join(RunRecord).where(RunRecord.name == name)
    with Session(world.store) as session:
        return {row.step: row.normalised_mse for row in session.execute(wanted)}


def events(world: World, name: str) -> dict[str, dict[int, float]]:
    """What TensorBoard reads of a run: metric -> step -> value, the last written first of all."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(world.data / "runs" / name / "tensorboard"))
    accumulator.Reload()
    return {
        tag: {event.step: event.value for event in accumulator.Scalars(tag)} for tag in accumulator.Tags()["scalars"]
    }


def after(steps: int) -> Callable[[], bool]:
    """Says stop once it has been asked so often."""
    asked = iter(range(1, 10_000))
    return lambda: next(asked) >= steps


def test_tensorboard_reads_what_the_store_has(world: World) -> None:
    train(world.config(), world.data, world.store, world.language_model, log=log_to("tensorboard"))
    found = events(world, "small")
    assert found.keys() == {f"fitting/{name}" for name in MEASURED}
    assert found["fitting/normalised_mse"] == pytest.approx(stored(world, "small"), rel=1e-6)
    assert list(found["fitting/normalised_mse"]) == [4, 8, 12, 16, 20, 24]


def test_tensorboard_goes_on_after_a_stop(world: World) -> None:
    words = (world.config(), world.data, world.store, world.language_model)
    log = log_to("tensorboard")
    assert train(*words, log=log, should_stop=after(10)).status == "stopped"
    train(*words, log=log, resume="if-any")
    assert events(world, "small")["fitting/normalised_mse"] == pytest.approx(stored(world, "small"), rel=1e-6)


@dataclass
class StandIn:
    """Takes what a run of wandb or trackio is given."""

    settings: dict[str, Any]
    logged: dict[int, Mapping[str, float]] = field(default_factory=dict)
    finished: int = 0

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        assert not self.finished
        self.logged[step] = metrics

    def finish(self) -> None:
        self.finished += 1


def stand_in(name: str, monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    """Put a module of this name in place; returns the runs that it is asked for, as they come."""
    made: list[StandIn] = []

    def init(**settings: Any) -> StandIn:
        made.append(StandIn(settings))
        return made[-1]

    module = ModuleType(name)
    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, f"trainer.logs.to_{name}", raising=False)
    return made


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_runs_that_are_fitted_together_have_a_log_each(
    name: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stand_in(name, monkeypatch)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    configs = [world.config(name="a"), world.config(name="b", k=2)]
    train_together(configs, world.data, world.store, world.language_model, log=log_to(name))
    assert [it.settings["name"] for it in made] == ["a", "b"]
    for it, config in zip(made, configs, strict=True):
        assert {step: metrics["normalised_mse"] for step, metrics in it.logged.items()} == stored(world, config.name)
        assert all(metrics.keys() == MEASURED for metrics in it.logged.values())
        assert it.settings["project"] == "mxd-explorer"
        assert it.settings["config"]["k"] == config.k
        assert it.finished == 1


def test_wandb_knows_a_resumed_run_again_and_a_new_one_of_its_name_not(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = stand_in("wandb", monkeypatch)
    words = (world.config(), world.data, world.store, world.language_model)
    log = log_to("wandb")
    train(*words, log=log, should_stop=after(10))
    train(*words, log=log, resume="if-any")
    first, second = (it.settings["id"] for it in made)
    assert first == second
    assert first.startswith("small-")
    assert min(made[1].logged) == 12


def test_trackio_goes_on_with_a_resumed_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand_in("trackio", monkeypatch)
    words = (world.config(), world.data, world.store, world.language_model)
    log = log_to("trackio")
    train(*words, log=log, should_stop=after(10))
    train(*words, log=log, resume="if-any")
    assert [it.settings["resume"] for it in made] == ["never", "allow"]


def test_a_failed_fit_closes_its_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand_in("wandb", monkeypatch)

    def enough(done: int, total: int, note: str) -> None:
        if done > 512:
            raise UserError("That was enough.")

    with pytest.raises(UserError, match="enough"):
        train(world.config(), world.data, world.store, world.language_model, progress=enough, log=log_to("wandb"))
    assert [it.finished for it in made] == [1]


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb"])
def test_what_is_not_installed_is_said_before_anything_is_loaded(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = "torch.utils.tensorboard.writer" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, f"trainer.logs.to_{name}", raising=False)
    words = ["train", str(saved_language_model(tmp_path / "lm")), "--layer", "1", "--text", world.text.text]
    more = ["--tokens", "1536", "--context", "16", "--data", str(world.data), "--log", name]
    assert mxd([*words, *more]) == 2
    assert f"pip install 'mxd-explorer[{name}]'" in capsys.readouterr().err
    assert not (world.data / "runs").exists()
