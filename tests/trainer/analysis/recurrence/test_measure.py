"""Experts that only changed their numbers are found again, others are not, and matches are stored."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sqlalchemy.orm import Session

from mxd.trainer.analysis.recurrence import Firing, measure_recurrence, save_recurrence
from mxd.trainer.analysis.results import ExpertRecurrence, Match, Recurrence, stored_matches
from mxd.trainer.config import RecurrenceConfig, TextConfig, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.storage.database.open import delete_index, sqlite_url, writing
from mxd.trainer.storage.database.tables import MeasurementRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.bootstrap import Interval
from tests.helpers.databases import made_up_database
from tests.helpers.layers import random_layer
from tests.helpers.runs import World, small_world

EXPERTS = 40


def with_layer(world: World, name: str, layer: SparseLayer) -> Run:
    run = Run(world.data, TrainConfig.model_validate(world.config(name).model_dump()))
    run.__dict__["layer"] = layer
    return run


def renumbered(layer: SparseLayer, order_N: torch.Tensor) -> SparseLayer:
    """A copy in which expert i is the original's expert ``order_N[i]``."""
    copy = random_layer(widths=(16, 20, 16), num_experts=EXPERTS)
    copy.load_state_dict(
        {
            key: value[order_N] if value.ndim and len(value) == EXPERTS else value
            for key, value in layer.state_dict().items()
        }
    )
    return copy


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A tiny language model with a text."""
    return small_world(tmp_path)


def test_renumbered_experts_are_found_again_and_others_are_not(world: World) -> None:
    layer = random_layer(widths=(16, 20, 16), num_experts=EXPERTS)
    order_N = torch.randperm(EXPERTS, generator=torch.Generator().manual_seed(3))
    run = with_layer(world, "run", layer)
    others = [
        with_layer(world, "renumbered", renumbered(layer, order_N)),
        with_layer(world, "random", random_layer(widths=(16, 20, 16), num_experts=EXPERTS, seed=9)),
    ]
    config = RecurrenceConfig(text=world.text, tokens=1600)
    result = measure_recurrence(run, others, config, world.language_model)
    same, different = result.runs
    assert len(result.experts) > 5
    for expert in result.experts:
        assert int(order_N[expert.matches[0].expert]) == expert.expert
        assert expert.matches[0].firing_cosine == pytest.approx(1, abs=1e-4)
        assert expert.matches[0].writing_cosine == pytest.approx(1, abs=1e-4)
        assert expert.matches[0].mutual
        assert expert.matches[0].firing_low == pytest.approx(1, abs=1e-4)
        assert expert.matches[0].firing_high == pytest.approx(1, abs=1e-4)
        unlike = expert.matches[1]
        assert unlike.firing_low <= unlike.firing_cosine + 1e-6 <= unlike.firing_high + 2e-6
    assert same.firing_cosine > same.chance_firing_cosine
    assert same.found_again.value > 0.8 > different.found_again.value
    assert same.chance < 0.2
    assert result.found_in_all.value == pytest.approx(
        sum(expert.found_in == 2 for expert in result.experts) / len(result.experts)
    )
    assert result == measure_recurrence(run, others, config, world.language_model)
    world.database.dispose()


def test_the_match_of_a_copied_expert_is_mutual_for_one_of_the_copies(world: World) -> None:
    layer = random_layer(widths=(16, 20, 16), num_experts=EXPERTS)
    order_N = torch.arange(EXPERTS)
    order_N[1::2] = order_N[::2]
    run, original = with_layer(world, "run", renumbered(layer, order_N)), with_layer(world, "original", layer)
    config = RecurrenceConfig(text=world.text, tokens=1600)
    experts = measure_recurrence(run, [original], config, world.language_model).experts
    found = [expert.expert for expert in experts if expert.matches[0].mutual]
    assert found
    assert len({int(order_N[expert]) for expert in found}) == len(found)
    world.database.dispose()


def test_gate_activations_and_outputs_are_summed_over_batches() -> None:
    layer = random_layer(widths=(16, 20, 16), num_experts=EXPERTS)
    x_TI = torch.randn(60, 16)
    whole, in_parts = Firing(layer), Firing(layer)
    whole.add(x_TI)
    for part_TI in x_TI.split(25):
        in_parts.add(part_TI)
    torch.testing.assert_close(whole.direction_NO, in_parts.direction_NO)
    assert torch.equal(whole.active_N, in_parts.active_N)
    routing = layer.route(x_TI)
    expert = int(whole.active_N.argmax())
    active_TK = (routing.indices_TK == expert) & (routing.activations_TK > 0)
    assert whole.active_N[expert] == active_TK.sum()


def test_runs_of_different_layers_and_rare_experts_are_refused(world: World) -> None:
    run = with_layer(world, "run", random_layer(widths=(16, 20, 16), num_experts=EXPERTS))
    above = Run(world.data, TrainConfig.model_validate(world.config("above", layer=2).model_dump()))
    above.__dict__["layer"] = run.layer
    config = RecurrenceConfig(text=world.text, tokens=320)
    with pytest.raises(UserError, match=r"'above' replaces layer 2, 'run' layer 1\. Choose runs of one layer\."):
        measure_recurrence(run, [above], config, world.language_model)
    few = config.model_copy(update={"min_tokens": 1000})
    with pytest.raises(UserError, match="No expert of 'run' is active on 1000 tokens"):
        measure_recurrence(run, [run], few, world.language_model)
    world.database.dispose()


CONFIG = RecurrenceConfig(text=TextConfig(dataset="held-out.jsonl"), tokens=4100)
MATCH = Match("seed-b", 7, 0.5, 0.25, 0.375, 0.625, 0.125, 0.0, mutual=True)


def result(run: str, *matches: Match) -> Recurrence:
    return Recurrence(
        run=run,
        num_experts=160,
        tokens=4096,
        min_tokens=20,
        runs=(),
        found_in_all=Interval(1.0, 1.0, 1.0),
        experts=(ExpertRecurrence(3, 40, matches),),
    )


def test_matches_are_replaced_and_deleted_with_the_index(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, sqlite_url(tmp_path))
    other = Match("seed-a", 2, 0.5, 0.25, 0.375, 0.625, 0.75, 0.0, mutual=True)
    assert save_recurrence(database, result("first", MATCH, other), CONFIG)
    with Session(database) as session:
        assert stored_matches(session, 1, 3) == (other, MATCH)
        assert [match.found for match in stored_matches(session, 1, 3)] == [False, True]
        assert stored_matches(session, 1, 4) == ()
        stored = session.get(MeasurementRecord, (1, "recurrence"))
        assert stored is not None and stored.settings["tokens"] == 4096
    assert save_recurrence(database, result("first", MATCH), CONFIG)
    with writing(database) as session:
        assert stored_matches(session, 1, 3) == (MATCH,)
        delete_index(session, 1)
        assert stored_matches(session, 1, 3) == ()
    database.dispose()


def test_a_run_without_an_index_is_not_stored(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, sqlite_url(tmp_path))
    assert not save_recurrence(database, result("second", MATCH), CONFIG)
    assert not save_recurrence(database, result("unknown", MATCH), CONFIG)
    database.dispose()
