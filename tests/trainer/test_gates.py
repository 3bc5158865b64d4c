"""Runs with cheaper gates are runs like others: fitted, stopped, resumed, indexed, evaluated, steered."""

from __future__ import annotations

import pytest
import torch

from tests.runs import World
from tests.trainer.test_starts import first_error, started
from tests.trainer.test_train import StopAfter, weights
from trainer.config import CollapseConfig, EvaluateConfig, IndexConfig, SteeringConfig, TrainConfig
from trainer.errors import UserError
from trainer.evaluation.evaluate import Session, evaluate
from trainer.gate_config import FittedGate, GateConfig
from trainer.indexing import build_index
from trainer.progress import never, silent
from trainer.routing import route
from trainer.run import Run
from trainer.steering import steer
from trainer.train import train, train_together

GATES = pytest.mark.parametrize("gate", ["product-key", "two-level"])


@GATES
def test_stopped_and_resumed_it_ends_the_same(world: World, gate: FittedGate) -> None:
    def config(name: str) -> TrainConfig:
        return world.config(name, gate=GateConfig(gate=gate))

    train(config("whole"), world.data, world.store, world.language_model)
    train(config("parts"), world.data, world.store, world.language_model, should_stop=StopAfter(13))
    train(config("parts"), world.data, world.store, world.language_model, resume="if-any")
    first, second = weights(world, "whole"), weights(world, "parts")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_gates_of_all_kinds_on_one_pass_and_used_like_any_run(world: World) -> None:
    gates: list[FittedGate] = ["flat", "product-key", "two-level"]
    configs = [world.config(gate, gate=GateConfig(gate=gate)) for gate in gates]
    results = train_together(configs, world.data, world.store, world.language_model)
    errors = [result.normalised_mse for result in results]
    assert max(errors) < 2 * errors[0]  # so short a fit ends anywhere
    for gate in gates[1:]:
        run = Run.load(gate, world.data)
        assert run.layer.config.gate.gate == gate
        index = IndexConfig(text=world.text, tokens=1_000)
        assert build_index(run, index, world.language_model, world.store).experts_active > 4
        measured = EvaluateConfig(text=world.text, tokens=160, prompts=2)
        session = Session.open(measured, world.language_model, silent, never)
        assert evaluate(session, run, True).result.run == gate
        routing = route(world.language_model, run, "the old fox ran")
        assert max(len(token.experts) for token in routing.tokens) <= 4
        expert = routing.strongest(1)[0]
        edited = SteeringConfig.model_validate(
            {"prompt": "the", "edits": [{"expert": expert, "mode": "off"}], "sampling": {"max_tokens": 2}}
        )
        assert list(steer(world.language_model, run, edited))


@GATES
def test_examples_are_better_than_the_best_constant(world: World, gate: FittedGate) -> None:
    layer, sample = started(world, "examples", gate=GateConfig(gate=gate))
    assert first_error(layer, sample) < 0.95


def test_two_levels_with_all_groups_chosen_start_as_a_flat_gate_does(world: World) -> None:
    every = GateConfig(gate="two-level", groups=5, chosen_groups=5)
    (flat, sample), (layer, _) = started(world, "examples"), started(world, "examples", gate=every)
    with torch.no_grad():
        wanted, found = (it(sample.read_by(it)).output_TO for it in (flat, layer))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


@GATES
def test_what_needs_a_row_an_expert_is_refused(world: World, gate: FittedGate) -> None:
    config = world.config(gate=GateConfig(gate=gate), collapse=CollapseConfig(revive_after=64))
    with pytest.raises(UserError, match="leave --revive-after out"):
        train(config, world.data, world.store, world.language_model)


def test_cells_are_not_fitted(world: World) -> None:
    with pytest.raises(UserError, match="then use mxd approximate"):
        train(world.config(gate=GateConfig(gate="cells")), world.data, world.store, world.language_model)
