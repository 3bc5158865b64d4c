"""Several runs on one pass over the activations: each ends as if it had been fitted alone, whatever interrupts it."""

from __future__ import annotations

import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.runs import World
from tests.trainer.test_train import StopAfter, metrics, weights
from trainer.config import TrainConfig
from trainer.errors import UserError
from trainer.fitting import Fit
from trainer.language_model import Capture, LanguageModel
from trainer.ongoing import DivergedError
from trainer.store import RunRecord
from trainer.train import TrainResult, train, train_together


def sweep(world: World, prefix: str) -> list[TrainConfig]:
    """Methods, K, N, seeds and layers that differ, on one text in one order."""
    return [
        world.config(f"{prefix}-a"),
        world.config(f"{prefix}-b", layer=2, k=2, method="transcoder"),
        world.config(f"{prefix}-c", seed=3, text_seed=0, num_experts=51),
    ]


def fit(world: World, configs: list[TrainConfig], **options: object) -> list[TrainResult]:
    return train_together(configs, world.data, world.store, world.language_model, **options)  # type: ignore[arg-type]


def assert_equal(world: World, one: str, other: str) -> None:
    first, second = weights(world, one), weights(world, other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_each_is_bit_for_bit_what_it_is_alone(world: World) -> None:
    together = fit(world, sweep(world, "together"))
    for config, result in zip(sweep(world, "alone"), together, strict=True):
        alone = train(config, world.data, world.store, world.language_model)
        assert (alone.tokens, alone.normalised_mse) == (result.tokens, result.normalised_mse)
        assert_equal(world, result.run, alone.run)
    with Session(world.store) as session:
        assert set(session.scalars(select(RunRecord.status))) == {"finished"}
    assert [metric.step for metric in metrics(world, "together-b")] == list(range(4, 25, 4))


def test_stopped_and_resumed(world: World) -> None:
    fit(world, sweep(world, "whole"))
    stopped = fit(world, sweep(world, "parts"), should_stop=StopAfter(13))
    assert [(result.status, result.tokens) for result in stopped] == [("stopped", 13 * 64)] * 3
    assert {result.status for result in fit(world, sweep(world, "parts"), resume="if-any")} == {"finished"}
    for letter in "abc":
        assert_equal(world, f"whole-{letter}", f"parts-{letter}")


def test_when_one_diverges_the_others_can_go_on_without_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(world, sweep(world, "whole"))
    step = Fit.step

    def broken(self: Fit, batch: Capture) -> None:
        step(self, batch)
        if self.config.name == "parts-b" and self.taken == 10:
            self.layer.get_parameter("output_bias").data.fill_(torch.inf)

    monkeypatch.setattr(Fit, "step", broken)
    with pytest.raises(DivergedError, match="parts-b has diverged: at step 12"):
        fit(world, sweep(world, "parts"))
    with Session(world.store) as session:
        status = {row.name: row.status for row in session.execute(select(RunRecord.name, RunRecord.status))}
    assert [status[f"parts-{letter}"] for letter in "abc"] == ["stopped", "failed", "stopped"]
    first, _, third = sweep(world, "parts")
    assert {result.status for result in fit(world, [first, third], resume="if-any")} == {"finished"}
    for letter in "ac":
        assert_equal(world, f"whole-{letter}", f"parts-{letter}")


def test_those_that_are_behind_catch_up(world: World) -> None:
    fit(world, sweep(world, "whole"))
    first, second, third = sweep(world, "parts")
    fit(world, [first], should_stop=StopAfter(13))
    fit(world, [second], should_stop=StopAfter(5))
    fit(world, [first, second, third], resume="if-any")
    for letter in "abc":
        assert_equal(world, f"whole-{letter}", f"parts-{letter}")


def test_a_finished_run_stays_as_it_is_while_another_is_fitted(world: World) -> None:
    first, second, _ = sweep(world, "parts")
    before = fit(world, [first])[0]
    again, other = fit(world, [first, second], resume="if-any")
    assert (again.status, again.normalised_mse) == ("finished", before.normalised_mse)
    assert other.status == "finished"


def test_the_language_model_is_read_once_for_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[list[int]] = []
    captures = LanguageModel.captures

    def counted(self: LanguageModel, layers: list[int], ids_BT: torch.Tensor) -> object:
        passes.append(list(layers))
        return captures(self, layers, ids_BT)

    monkeypatch.setattr(LanguageModel, "captures", counted)
    fit(world, sweep(world, "together"))
    assert passes == [[1, 2]] * 3, "three windows; the first also has the examples that experts start as"


def test_one_that_cannot_be_fitted_leaves_nothing_of_the_others(world: World) -> None:
    first, second, _ = sweep(world, "parts")
    with pytest.raises(UserError, match="lower --k"):
        fit(world, [first, second.model_copy(update={"k": 41})])
    with pytest.raises(UserError, match="layers 0 to 2"):
        fit(world, [first, second.model_copy(update={"layer": 3})])
    with pytest.raises(UserError, match="2 runs would be named parts-a"):
        fit(world, [first, first])
    assert not list((world.data / "runs").glob("*/run.json"))
    with Session(world.store) as session:
        assert session.scalars(select(RunRecord)).all() == []


def test_one_that_exists_is_not_overwritten(world: World) -> None:
    first, second, _ = sweep(world, "parts")
    fit(world, [second])
    with pytest.raises(UserError, match="The run parts-b exists"):
        fit(world, [first, second])
