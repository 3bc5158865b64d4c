"""Measured effects are those of the language model, and steering's; predicted ones meet them where nothing bends."""

from __future__ import annotations

import math

import pytest
import torch

from tests.runs import World, run_of
from trainer.circuits.agreement import agreement, check
from trainer.circuits.config import CircuitConfig, TargetConfig
from trainer.circuits.effects import Effect, switch_off
from trainer.circuits.graph import Switch
from trainer.circuits.tracing import trace
from trainer.config import Edit, Sampling, SteeringConfig
from trainer.errors import UserError
from trainer.routing import prompt_ids
from trainer.steering import NewToken, steer

TEXT = "the old fox"
CONFIG = CircuitConfig(prompt=TEXT)


@pytest.mark.parametrize("errors", ["kept", "dropped"])
def test_measured_effects_are_steerings(world: World, errors: str) -> None:
    runs = [run_of(world, "early", 0), run_of(world, "late", 2)]
    circuit = trace(world.language_model, runs, CircuitConfig(prompt=TEXT, errors=errors))
    at = circuit.experts[0].position
    group = [it for it in circuit.experts if it.position == at]
    config = TargetConfig(prompt=TEXT, errors=errors, target=circuit.target.id)
    (effect,) = switch_off(world.language_model, runs, config, [group])
    edits = tuple(Edit(expert=it.expert, mode="off", run=it.run) for it in group)
    if errors == "dropped":  # steering replaces the layers that it edits: all of them here
        edits += (Edit(expert=0, mode="scale", run="early"), Edit(expert=0, mode="scale", run="late"))
    steered = steer(
        world.language_model,
        runs,
        SteeringConfig(
            prompt=TEXT,
            edits=edits,
            apply="on-top" if errors == "kept" else "replace",
            positions=(at,),
            sampling=Sampling(max_tokens=1, temperature=0, repetition_penalty=1),
        ),
    )
    first = next(step for step in steered if isinstance(step, NewToken) and step.arm == "steered")
    found = {it.id: it.probability for it in first.alternatives}
    if circuit.target.id in found:
        assert found[circuit.target.id] == pytest.approx(effect.probability, abs=1e-4)
    else:
        assert max(found.values()) >= effect.probability


def test_behind_the_last_layer_predictions_miss_by_the_norm_alone(world: World) -> None:
    run = run_of(world, "last", 2)
    circuit = trace(world.language_model, run, CONFIG)
    experts = [it for it in circuit.experts if it.position == len(circuit.tokens) - 1]
    small = min(experts, key=lambda it: abs(next(n.effect for n in circuit.nodes if n.expert == it.expert)))
    ids = torch.tensor([prompt_ids(world.language_model, TEXT)])
    layer = run.layer
    x_1I = world.language_model.capture(2, ids).input_TI[-1:]
    routing = layer.route(x_1I)
    column = routing.indices_TK[0].tolist().index(small.expert)
    one = type(routing)(routing.coefficients_TK[:, column : column + 1], routing.indices_TK[:, column : column + 1])
    residual_W = world.language_model.last_residual(ids)[0, -1]
    without_W = residual_W - layer.contribution(layer.dense_output(x_1I), one)[0]
    logits_RV = world.language_model.logits_of(torch.stack([residual_W, without_W]))
    above_R = logits_RV[:, circuit.target.id] - logits_RV.mean(1)
    (effect,) = switch_off(world.language_model, run, CONFIG, [[small]])
    assert effect.measured == pytest.approx(float(above_R[1] - above_R[0]), abs=1e-4)


def test_every_expert_of_a_circuit_is_checked(world: World) -> None:
    runs = [run_of(world, "early", 0), run_of(world, "late", 2)]
    circuit = trace(world.language_model, runs, CONFIG)
    effects = check(world.language_model, runs, CONFIG, circuit)
    assert len(effects) == len(circuit.experts)
    of_node = {Switch(n.run or "", n.position, n.expert or 0): n.effect for n in circuit.nodes if n.kind == "expert"}
    for switch, effect in zip(circuit.experts, effects, strict=True):
        assert effect.predicted == pytest.approx(-of_node[switch], abs=1e-3)
        assert 0 <= effect.probability <= 1
    found = agreement(effects)
    assert found.experts == len(effects)
    assert -1 <= found.correlation <= 1


def test_agreement_by_hand() -> None:
    effects = [Effect(1.0, 0.5, 0.1), Effect(-2.0, -1.0, 0.1), Effect(0.5, -0.1, 0.1), Effect(3.0, 1.5, 0.1)]
    found = agreement(effects)
    assert (found.experts, found.same_sign, found.same_sign_of_large) == (4, 0.75, 1.0)
    assert found.slope == pytest.approx((0.5 + 2 - 0.05 + 4.5) / (1 + 4 + 0.25 + 9))
    assert found.correlation > 0.9
    assert math.isnan(agreement([]).same_sign)
    assert math.isnan(agreement([effects[0]]).correlation)


def test_what_cannot_be_switched_off_is_said(world: World) -> None:
    run = run_of(world, "alone", 1)
    circuit = trace(world.language_model, run, CONFIG)
    with pytest.raises(UserError, match="none of the circuit's; name alone"):
        switch_off(world.language_model, run, CONFIG, [[Switch("other", 1, 1)]])
    with pytest.raises(UserError, match="there is no token 99"):
        switch_off(world.language_model, run, CONFIG, [[Switch("alone", 99, 1)]])
    active = {it.expert for it in circuit.experts if it.position == 3}
    asleep = next(
        n
        for n in range(33)
        if (3, n)
        not in {
            (it.position, it.expert)
            for it in trace(world.language_model, run, CircuitConfig(prompt=TEXT, nodes=300, share=1.0)).experts
        }
    )
    assert asleep not in active
    with pytest.raises(UserError, match=f"not all.*{asleep} on token 3|Not all.*{asleep} on token 3"):
        switch_off(world.language_model, run, CONFIG, [[Switch("alone", 3, asleep)]])
