"""Several runs on one pass over the activations: each ends as if trained alone, also after interruptions."""

from __future__ import annotations

import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.config import TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.training.layer_trainer import LayerTrainer
from mxd.trainer.training.train import DivergedError, TrainResult, train_layer, train_layers
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.runs import World
from tests.trainer.training.test_train import StopAfter, metrics, weights


def sweep(world: World, prefix: str) -> list[TrainConfig]:
    """Runs with different methods, K, N, seeds and layers on the same text."""
    return [
        world.config(f"{prefix}-a"),
        world.config(f"{prefix}-b", layer=2, k=2, method="transcoder"),
        world.config(f"{prefix}-c", seed=3, data_seed=0, num_experts=51),
    ]


def train(world: World, configs: list[TrainConfig], **options: object) -> list[TrainResult]:
    return train_layers(configs, world.data, world.database, world.language_model, **options)  # type: ignore[arg-type]


def assert_equal(world: World, one: str, other: str) -> None:
    first, second = weights(world, one), weights(world, other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_each_run_is_bit_identical_to_training_alone(world: World) -> None:
    together = train(world, sweep(world, "together"))
    for config, result in zip(sweep(world, "alone"), together, strict=True):
        alone = train_layer(config, world.data, world.database, world.language_model)
        assert (alone.tokens, alone.normalized_mse) == (result.tokens, result.normalized_mse)
        assert_equal(world, result.run, alone.run)
    with Session(world.database) as session:
        assert set(session.scalars(select(RunRecord.status))) == {"finished"}
    assert [metric.step for metric in metrics(world, "together-b")] == list(range(4, 25, 4))


def test_stopped_runs_resume(world: World) -> None:
    train(world, sweep(world, "whole"))
    stopped = train(world, sweep(world, "parts"), callbacks=Callbacks(is_cancelled=StopAfter(13)))
    assert [(result.status, result.tokens) for result in stopped] == [("stopped", 13 * 64)] * 3
    assert {result.status for result in train(world, sweep(world, "parts"), resume="if-any")} == {"finished"}
    for letter in "abc":
        assert_equal(world, f"whole-{letter}", f"parts-{letter}")


def test_runs_resume_without_a_diverged_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    train(world, sweep(world, "whole"))
    train_step = LayerTrainer.train_step

    def broken(self: LayerTrainer, batch: MlpActivations) -> None:
        train_step(self, batch)
        if self.config.name == "parts-b" and self.step == 10:
            self.layer.get_parameter("output_bias").data.fill_(torch.inf)

    monkeypatch.setattr(LayerTrainer, "train_step", broken)
    with pytest.raises(DivergedError, match="parts-b' has diverged: the loss at step 12"):
        train(world, sweep(world, "parts"))
    with Session(world.database) as session:
        status = {row.name: row.status for row in session.execute(select(RunRecord.name, RunRecord.status))}
    assert [status[f"parts-{letter}"] for letter in "abc"] == ["stopped", "failed", "stopped"]
    first, _, third = sweep(world, "parts")
    assert {result.status for result in train(world, [first, third], resume="if-any")} == {"finished"}
    for letter in "ac":
        assert_equal(world, f"whole-{letter}", f"parts-{letter}")


def test_runs_that_are_behind_catch_up(world: World) -> None:
    train(world, sweep(world, "whole"))
    first, second, third = sweep(world, "parts")
    train(world, [first], callbacks=Callbacks(is_cancelled=StopAfter(13)))
    train(world, [second], callbacks=Callbacks(is_cancelled=StopAfter(5)))
    train(world, [first, second, third], resume="if-any")
    for letter in "abc":
        assert_equal(world, f"whole-{letter}", f"parts-{letter}")


def test_a_finished_run_is_unchanged_while_another_trains(world: World) -> None:
    first, second, _ = sweep(world, "parts")
    before = train(world, [first])[0]
    again, other = train(world, [first, second], resume="if-any")
    assert (again.status, again.normalized_mse) == ("finished", before.normalized_mse)
    assert other.status == "finished"


def test_all_runs_share_one_forward_pass(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[list[int]] = []
    captures = LanguageModel.capture_layers

    def counted(self: LanguageModel, layers: list[int], ids_BT: torch.Tensor) -> object:
        passes.append(list(layers))
        return captures(self, layers, ids_BT)

    monkeypatch.setattr(LanguageModel, "capture_layers", counted)
    train(world, sweep(world, "together"))
    assert passes == [[1, 2]] * 3, "three windows; the first also has the examples that experts start as"


def test_an_invalid_run_creates_none_of_the_others(world: World) -> None:
    first, second, _ = sweep(world, "parts")
    with pytest.raises(UserError, match="Lower --k"):
        train(world, [first, second.model_copy(update={"k": 41})])
    with pytest.raises(UserError, match="layers 0 to 2"):
        train(world, [first, second.model_copy(update={"layer": 3})])
    with pytest.raises(UserError, match="2 runs have the name 'parts-a'"):
        train(world, [first, first])
    assert not list((world.data / "runs").glob("*/run.json"))
    with Session(world.database) as session:
        assert session.scalars(select(RunRecord)).all() == []


def test_an_existing_run_among_several_is_not_overwritten(world: World) -> None:
    first, second, _ = sweep(world, "parts")
    train(world, [second])
    with pytest.raises(UserError, match="'parts-b' already exists"):
        train(world, [first, second])
