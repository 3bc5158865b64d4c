"""Experts that only changed their numbers are found again, others are not, and matches are stored."""

from pathlib import Path

import pytest
import torch
from sqlalchemy.orm import Session

from mxd.trainer.analysis.recurrence import measure_recurrence, save_recurrence
from mxd.trainer.analysis.results import ExpertRecurrence, Match, Recurrence, stored_matches
from mxd.trainer.config import RecurrenceConfig, TextConfig
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.storage.database.open import delete_index, sqlite_url, writing
from mxd.trainer.storage.database.tables import MeasurementRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.bootstrap import Interval
from tests.helpers.databases import made_up_database
from tests.helpers.layers import random_layer
from tests.helpers.runs import World, run_of

EXPERTS = 40


def with_layer(world: World, name: str, layer: SparseLayer) -> Run:
    run = run_of(world, name)
    run.__dict__["layer"] = layer
    return run


def layer_of(seed: int = 0) -> SparseLayer:
    return random_layer(widths=(16, 20, 16), num_experts=EXPERTS, seed=seed)


def renumbered(layer: SparseLayer, order_N: torch.Tensor) -> SparseLayer:
    """A copy in which expert i is the original's expert ``order_N[i]``."""
    copy = layer_of()
    copy.load_state_dict(
        {
            key: value[order_N] if value.ndim and len(value) == EXPERTS else value
            for key, value in layer.state_dict().items()
        }
    )
    return copy


def test_renumbered_experts_are_found_again_and_others_are_not(world: World) -> None:
    layer = layer_of()
    order_N = torch.randperm(EXPERTS, generator=torch.Generator().manual_seed(3))
    run = with_layer(world, "run", layer)
    others = [
        with_layer(world, "renumbered", renumbered(layer, order_N)),
        with_layer(world, "random", layer_of(seed=9)),
    ]
    config = RecurrenceConfig(text=world.text, tokens=1600)
    result = measure_recurrence(run, others, config, world.language_model)
    assert len(result.experts) > 5
    for expert in result.experts:
        assert int(order_N[expert.matches[0].expert]) == expert.expert
        found = expert.matches[0]
        measures = (found.firing_cosine, found.writing_cosine, found.firing_low, found.firing_high)
        assert found.mutual and measures == pytest.approx((1, 1, 1, 1), abs=1e-4)
        unlike = expert.matches[1]
        assert unlike.firing_low <= unlike.firing_cosine + 1e-6 <= unlike.firing_high + 2e-6
    same, different = result.runs
    assert same.firing_cosine > same.chance_firing_cosine
    assert same.found_again.value > 0.8 > different.found_again.value
    assert same.chance < 0.2
    assert result.found_in_all.value == pytest.approx(
        sum(expert.found_in == 2 for expert in result.experts) / len(result.experts)
    )
    assert result == measure_recurrence(run, others, config, world.language_model)


def test_the_match_of_a_copied_expert_is_mutual_for_one_of_the_copies(world: World) -> None:
    layer = layer_of()
    order_N = torch.arange(EXPERTS)
    order_N[1::2] = order_N[::2]
    run, original = with_layer(world, "run", renumbered(layer, order_N)), with_layer(world, "original", layer)
    config = RecurrenceConfig(text=world.text, tokens=1600)
    experts = measure_recurrence(run, [original], config, world.language_model).experts
    found = [expert.expert for expert in experts if expert.matches[0].mutual]
    assert found
    assert len({int(order_N[expert]) for expert in found}) == len(found)


def test_runs_of_different_layers_and_rare_experts_are_refused(world: World) -> None:
    run = with_layer(world, "run", layer_of())
    above = run_of(world, "above", 2)
    config = RecurrenceConfig(text=world.text, tokens=320)
    with pytest.raises(UserError, match=r"'above' replaces layer 2, 'run' layer 1\. Choose runs of one layer\."):
        measure_recurrence(run, [above], config, world.language_model)
    few = config.model_copy(update={"min_tokens": 1000})
    with pytest.raises(UserError, match="No expert of 'run' is active on 1000 tokens"):
        measure_recurrence(run, [run], few, world.language_model)


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
    for name in ("second", "unknown"):
        assert not save_recurrence(database, result(name, MATCH), CONFIG), "it has no index"
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
