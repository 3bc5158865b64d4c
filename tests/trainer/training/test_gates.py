"""Runs with product-key and two-level gates: train, resume, index, evaluate, steer."""

from __future__ import annotations

import pytest
import torch

from mxd.trainer.analysis.indexing import build_index
from mxd.trainer.config import EvaluateConfig, IndexConfig, SteeringConfig, TrainConfig
from mxd.trainer.config.gates import GateConfig, GateForm
from mxd.trainer.evaluation.evaluate import Evaluator, evaluate
from mxd.trainer.inference.routing import route
from mxd.trainer.inference.steering import steer
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer, train_layers
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from tests.helpers.runs import World
from tests.trainer.training.test_initialization import initialized, start_error
from tests.trainer.training.test_train import StopAfter, weights

GATES = pytest.mark.parametrize("gate", ["product-key", "two-level"])


@GATES
def test_resuming_gives_the_same_weights(world: World, gate: GateForm) -> None:
    def config(name: str) -> TrainConfig:
        return world.config(name, gate=GateConfig(gate=gate))

    train_layer(config("whole"), world.data, world.database, world.language_model)
    train_layer(
        config("parts"),
        world.data,
        world.database,
        world.language_model,
        callbacks=Callbacks(is_cancelled=StopAfter(13)),
    )
    train_layer(config("parts"), world.data, world.database, world.language_model, resume="if-any")
    first, second = weights(world, "whole"), weights(world, "parts")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_runs_with_all_gates_train_on_one_pass_and_can_be_used(world: World) -> None:
    gates: list[GateForm] = ["flat", "product-key", "two-level"]
    configs = [world.config(gate, gate=GateConfig(gate=gate)) for gate in gates]
    results = train_layers(configs, world.data, world.database, world.language_model)
    errors = [result.normalized_mse for result in results]
    assert max(errors) < 2 * errors[0]  # so short a fit ends anywhere
    for gate in gates[1:]:
        run = Run.load(gate, world.data)
        assert run.layer.config.gate.gate == gate
        index = IndexConfig(text=world.text, tokens=1_000)
        assert build_index(run, index, world.language_model, world.database).active_experts > 4
        measured = EvaluateConfig(text=world.text, tokens=160, prompts=2)
        session = Evaluator.open(measured, world.language_model, NO_CALLBACKS)
        assert evaluate(session, run, True).result.run == gate
        routing = route(world.language_model, run, "the old fox ran")
        assert max(len(token.experts) for token in routing.tokens) <= 4
        expert = routing.strongest(1)[0]
        edited = SteeringConfig.model_validate(
            {"prompt": "the", "edits": [{"expert": expert, "mode": "ablate"}], "sampling": {"max_tokens": 2}}
        )
        assert list(steer(world.language_model, run, edited))


@GATES
def test_initialisation_from_examples_beats_the_mean(world: World, gate: GateForm) -> None:
    layer, sample = initialized(world, "examples", gate=GateConfig(gate=gate))
    assert start_error(layer, sample) < 0.95


def test_a_two_level_gate_with_all_groups_equals_a_flat_gate_at_initialisation(world: World) -> None:
    every = GateConfig(gate="two-level", groups=5, top_groups=5)
    (flat, sample), (layer, _) = initialized(world, "examples"), initialized(world, "examples", gate=every)
    with torch.no_grad():
        expected, outputs = (it(sample.inputs_for(it)).output_TO for it in (flat, layer))
    torch.testing.assert_close(outputs, expected, rtol=1e-3, atol=1e-4)
