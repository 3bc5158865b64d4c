"""Measured effects against steering and the language model, and their agreement with the predicted ones."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from mxd.trainer.analysis.circuits.ablation import ablate_experts
from mxd.trainer.analysis.circuits.agreement import ablate_each_expert, agreement
from mxd.trainer.analysis.circuits.forward_pass import run_linearized
from mxd.trainer.analysis.circuits.graph import AblationEffect, ExpertAtToken
from mxd.trainer.analysis.circuits.tracing import trace
from mxd.trainer.config import Edit, Sampling, SteeringConfig
from mxd.trainer.config.analysis import CircuitConfig, TargetConfig
from mxd.trainer.errors import UserError
from mxd.trainer.inference.results import TokenEvent
from mxd.trainer.inference.steering import steer
from mxd.trainer.language_model.prompts import prompt_ids
from tests.helpers.runs import World, run_of

TEXT = "the old fox"
CONFIG = CircuitConfig(prompt=TEXT)


@pytest.mark.parametrize("errors", ["kept", "dropped"])
def test_measured_effects_equal_those_of_steering(world: World, errors: str) -> None:
    runs = [run_of(world, "early", 0), run_of(world, "late", 2)]
    circuit = trace(world.language_model, runs, CircuitConfig(prompt=TEXT, errors=errors))
    position = circuit.experts[0].position
    group = [expert for expert in circuit.experts if expert.position == position]
    config = TargetConfig(prompt=TEXT, errors=errors, target=circuit.target.id)
    (effect,) = ablate_experts(world.language_model, runs, config, [group])
    edits = tuple(Edit(expert=at.expert, mode="ablate", run=at.run) for at in group)
    if errors == "dropped":  # steering replaces only edited layers, so every layer gets an edit
        edits += (Edit(expert=0, mode="scale", run="early"), Edit(expert=0, mode="scale", run="late"))
    steered = steer(
        world.language_model,
        runs,
        SteeringConfig(
            prompt=TEXT,
            edits=edits,
            mode="residual" if errors == "kept" else "replace",
            positions=(position,),
            sampling=Sampling(max_tokens=1, temperature=0, repetition_penalty=1),
        ),
    )
    first = next(step for step in steered if isinstance(step, TokenEvent) and step.variant == "steered")
    probabilities = {token.id: token.probability for token in first.alternatives}
    if circuit.target.id in probabilities:
        assert probabilities[circuit.target.id] == pytest.approx(effect.probability, abs=1e-4)
    else:
        assert max(probabilities.values()) >= effect.probability


def test_in_the_last_layer_predictions_differ_by_the_norm_only(world: World) -> None:
    run = run_of(world, "last", 2)
    circuit = trace(world.language_model, run, CONFIG)
    experts = [expert for expert in circuit.experts if expert.position == len(circuit.tokens) - 1]
    small = min(experts, key=lambda at: abs(next(n.effect for n in circuit.nodes if n.expert == at.expert)))
    ids = torch.tensor([prompt_ids(world.language_model, TEXT)])
    layer = run.layer
    x_1I = world.language_model.capture(2, ids).input_TI[-1:]
    routing = layer.route(x_1I)
    column = routing.indices_TK[0].tolist().index(small.expert)
    one = type(routing)(routing.coefficients_TK[:, column : column + 1], routing.indices_TK[:, column : column + 1])
    residual_W = world.language_model.residual(ids)[0, -1]
    without_W = residual_W - layer.contribution(layer.dense_output(x_1I), one)[0]
    logits_RV = world.language_model.unembed(torch.stack([residual_W, without_W]))
    above_R = logits_RV[:, circuit.target.id] - logits_RV.mean(1)
    (effect,) = ablate_experts(world.language_model, run, CONFIG, [[small]])
    assert effect.measured == pytest.approx(float(above_R[1] - above_R[0]), abs=1e-4)


def test_every_expert_of_a_circuit_is_ablated(world: World) -> None:
    runs = [run_of(world, "early", 0), run_of(world, "late", 2)]
    circuit = trace(world.language_model, runs, CONFIG)
    effects = ablate_each_expert(world.language_model, runs, CONFIG, circuit)
    assert len(effects) == len(circuit.experts)
    predicted = {
        ExpertAtToken(n.run or "", n.position, n.expert or 0): n.effect for n in circuit.nodes if n.kind == "expert"
    }
    for expert, effect in zip(circuit.experts, effects, strict=True):
        assert effect.predicted == pytest.approx(-predicted[expert], abs=1e-3)
        assert 0 <= effect.probability <= 1
    result = agreement(effects)
    assert result.experts == len(effects)
    assert result.correlation is not None and -1 <= result.correlation <= 1


def test_agreement_computed_by_hand() -> None:
    pairs = [(1.0, 0.5), (-2.0, -1.0), (0.5, -0.1), (3.0, 1.5), (4.0, 2.0)]
    effects = [AblationEffect(predicted, measured, 0.1) for predicted, measured in pairs]
    result = agreement(effects)
    assert (result.experts, result.same_sign, result.same_sign_of_large) == (5, 0.8, 1.0)
    assert result.slope == pytest.approx((0.5 + 2 - 0.05 + 4.5 + 8) / (1 + 4 + 0.25 + 9 + 16))
    assert result.correlation is not None and result.correlation > 0.9
    assert agreement([]).same_sign is None


def test_a_correlation_that_rests_on_one_expert_is_seen() -> None:
    pairs = [(9.0, 9.0), (1.0, -1.0), (-1.0, 1.0), (2.0, -2.0), (-2.0, 2.0), (0.5, -0.5)]
    result = agreement(AblationEffect(predicted, measured, 0.1) for predicted, measured in pairs)
    assert result.correlation is not None and result.correlation > 0.5
    assert result.correlation_without_largest == pytest.approx(-1)


def test_few_or_constant_effects_have_no_correlation_and_few_have_no_slope() -> None:
    effects = [AblationEffect(float(number), float(number), 0.1) for number in range(5)]
    assert agreement(effects).correlation == pytest.approx(1)
    assert (agreement(effects[:4]).correlation, agreement(effects[:4]).slope) == (None, None)
    assert agreement([effects[0]] * 5).correlation is None


def test_invalid_groups_are_errors(world: World) -> None:
    run = run_of(world, "alone", 1)
    with pytest.raises(UserError, match="Unknown run 'other'"):
        ablate_experts(world.language_model, run, CONFIG, [[ExpertAtToken("other", 1, 1)]])
    with pytest.raises(UserError, match="Unknown token position 99"):
        ablate_experts(world.language_model, run, CONFIG, [[ExpertAtToken("alone", 99, 1)]])
    every_node = trace(world.language_model, run, CircuitConfig(prompt=TEXT, nodes=300, share=1.0))
    active = {at.expert for at in every_node.experts if at.position == 3}
    inactive = next(expert for expert in range(33) if expert not in active)
    with pytest.raises(UserError, match=f"Not all.*{inactive} on token 3"):
        ablate_experts(world.language_model, run, CONFIG, [[ExpertAtToken("alone", 3, inactive)]])


@pytest.mark.parametrize("live", [True, False])
def test_a_passes_graph_is_freed(world: World, live: bool) -> None:
    """Also with live coefficients, whose hooks autograd keeps where Python's collector does not look."""
    run = run_of(world, "early", 0)
    ids = prompt_ids(world.language_model, TEXT)
    forward_pass = run_linearized(world.language_model, [run], ids, "kept", live=live)
    node = weakref.ref(forward_pass.sites[0].output_1TO)
    del forward_pass
    gc.collect()
    assert node() is None
