"""Gradients of every kind of target against finite differences in the language model."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from mxd.trainer.analysis.effects import (
    differentiable_forward,
    expert_products,
    gradients_of,
    layers_of,
    read_target,
)
from mxd.trainer.config.analysis import (
    ContinuationTarget,
    DifferenceTarget,
    ExpertTarget,
    SetTarget,
    Target,
    TokenTarget,
)
from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.storage.run import Run
from tests.helpers.language_models import tiny_language_model
from tests.helpers.runs import World, run_of

TARGETS: list[Target] = [
    TokenTarget(token=70),
    DifferenceTarget(token=70, other=99),
    SetTarget(tokens=(70, 99, 70)),
    ContinuationTarget(text=" red"),
]


def value_of(language_model: LanguageModel, target: Target, text: str, change_O: Tensor, layer: int) -> float:
    """The target by its definition, in float64, with a vector added to an MLP's output on token 2."""
    ids = prompt_ids(language_model, text)
    more = language_model.tokenizer(target.text)["input_ids"] if isinstance(target, ContinuationTarget) else []

    def changed(_x: Tensor, mlp: Mlp) -> Tensor:
        output = mlp().clone()
        output[0, 2] += change_O
        return output

    with torch.no_grad(), language_model.replace_mlps({layer: changed}):
        logits_TV = language_model.module(input_ids=torch.tensor([ids + more])).logits[0].double()
    last_V = logits_TV[len(ids) - 1]
    match target:
        case TokenTarget(token=int(token)):
            return float(last_V[token] - last_V.mean())
        case DifferenceTarget(token=token, other=other):
            return float(last_V[token] - last_V[other])
        case SetTarget(tokens=tokens):
            return float(last_V.softmax(0)[list(set(tokens))].sum().log())
        case _:
            log_p_TV = logits_TV.log_softmax(1)
            return sum(float(log_p_TV[len(ids) - 1 + index, token]) for index, token in enumerate(more))


class Gradients(NamedTuple):
    """Value of a target, and its gradient at each layer's output, [T, O]."""

    value: float
    target: Target
    sites: dict[int, torch.Tensor]


def output_gradients(
    language_model: LanguageModel,
    layers: Mapping[int, SparseLayer],
    ids: Sequence[int],
    target: Target,
    runs: Sequence[Run] = (),
) -> Gradients:
    reading = read_target(language_model, ids, target, runs)
    forward = differentiable_forward(language_model, layers, reading)
    reading = reading.with_token(forward)
    value_1 = reading.value(forward)
    gradients = gradients_of(value_1, [forward.outputs_BTO[layer] for layer in layers])
    return Gradients(
        float(value_1.detach()), reading.target, {layer: it[0] for layer, it in zip(layers, gradients, strict=True)}
    )


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.kind)
@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "gemma2", "opt", "falcon"])
def test_gradients_equal_finite_differences(family: str, target: Target, world: World) -> None:
    language_model = tiny_language_model(family)
    language_model.module.double()
    layers = {layer: run_of(world, f"l{layer}", layer).layer for layer in (0, 1)}
    ids = prompt_ids(language_model, "the old fox")
    gradients = output_gradients(language_model, layers, ids, target)
    change_O = 1e-4 * torch.randn(16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert gradients.value == pytest.approx(value_of(language_model, target, "the old fox", 0 * change_O, 0), abs=1e-4)
    for layer in layers:
        up, down = (value_of(language_model, target, "the old fox", sign * change_O, layer) for sign in (1, -1))
        predicted = float(gradients.sites[layer][2].double() @ change_O)
        assert predicted == pytest.approx((up - down) / 2, rel=5e-3, abs=1e-8)


def test_an_experts_activation_is_a_target(world: World) -> None:
    runs = [run_of(world, "early", 0), run_of(world, "late", 2)]
    ids = prompt_ids(world.language_model, "the old fox")
    layers = layers_of(world.language_model, runs)
    x_1I = world.language_model.capture(2, torch.tensor([ids])).input_TI[-1:]
    activations_1K, indices_1K = layers[2].route(x_1I)
    expert, value = int(indices_1K[0, 0]), float(activations_1K[0, 0])
    target = ExpertTarget(run="late", expert=expert)
    gradients = output_gradients(world.language_model, layers, ids, target, runs)
    assert gradients.value == pytest.approx(value, rel=1e-5)
    assert not gradients.sites[2].any()  # its own layer comes after its gate

    step_O = 1e-2 * gradients.sites[0][1]

    def changed(_x: Tensor, mlp: Mlp) -> Tensor:
        output = mlp().clone()
        output[0, 1] += step_O
        return output

    with torch.no_grad(), world.language_model.replace_mlps({0: changed}):
        x_1I = world.language_model.capture(2, torch.tensor([ids])).input_TI[-1:]
    score = float(x_1I[0] @ runs[1].layer.gate.rows(slice(expert, expert + 1))[0])
    before = value - (float(runs[1].layer.route(x_1I).activations_TK[0, 0]) - score)
    expected = float(gradients.sites[0][1] @ step_O)
    assert score - before == pytest.approx(expected, rel=0.2)
    inactive = next(e for e in range(40) if e not in indices_1K[0].tolist())
    other = output_gradients(world.language_model, layers, ids, ExpertTarget(run="late", expert=inactive), runs)
    assert other.value == 0 and other.sites[0].any()


def test_the_most_probable_token_is_the_default(world: World) -> None:
    ids = prompt_ids(world.language_model, "the old fox")
    layers = layers_of(world.language_model, [run_of(world, "early", 0)])
    gradients = output_gradients(world.language_model, layers, ids, TokenTarget())
    assert gradients.target == TokenTarget(token=int(world.language_model.logits(torch.tensor([ids]))[0, -1].argmax()))


def test_products_equal_each_experts_contribution(world: World) -> None:
    layer = run_of(world, "early", 0).layer
    generator = torch.Generator().manual_seed(1)
    x_TI, gradient_TO = torch.randn(5, 16, generator=generator), torch.randn(5, 16, generator=generator)
    products_TK, routing = expert_products(layer, x_TI, gradient_TO)
    dense_TM = layer.dense_output(x_TI)
    for column in range(products_TK.shape[1]):
        one = type(routing)(*(values[:, column : column + 1] for values in routing))
        expected_T = (layer.contribution(dense_TM, one) * gradient_TO).sum(1)
        torch.testing.assert_close(products_TK[:, column], expected_T)


def test_a_pass_is_released(world: World) -> None:
    layers = layers_of(world.language_model, [run_of(world, "early", 0)])
    reading = read_target(world.language_model, prompt_ids(world.language_model, "the old fox"), TokenTarget(token=3))
    forward = differentiable_forward(world.language_model, layers, reading)
    gradients_of(reading.value(forward), [forward.outputs_BTO[0]])
    alive = weakref.ref(forward.outputs_BTO[0])
    gc.disable()
    try:
        del forward
        assert alive() is None  # without a cycle that only the garbage collector, or nothing, would free
    finally:
        gc.enable()


def test_gradients_inside_inference_mode(world: World) -> None:
    layers = layers_of(world.language_model, [run_of(world, "early", 0)])
    ids = prompt_ids(world.language_model, "the old fox")
    expected = output_gradients(world.language_model, layers, ids, TokenTarget(token=3))
    with torch.inference_mode():
        gradients = output_gradients(world.language_model, layers, ids, TokenTarget(token=3))
    torch.testing.assert_close(gradients.sites[0], expected.sites[0])


def test_rejected_targets(world: World) -> None:
    language_model, run = world.language_model, run_of(world, "early", 0)
    ids = prompt_ids(language_model, "the old fox")
    wrong: list[Target] = [
        TokenTarget(token=257),
        DifferenceTarget(token=1, other=300),
        SetTarget(tokens=(1, 999)),
        ExpertTarget(run="other", expert=1),
        ExpertTarget(run="early", expert=40),
    ]
    for target in wrong:
        with pytest.raises(UserError, match="Unknown"):
            read_target(language_model, ids, target, [run])
    with pytest.raises(TooLongError, match="too long: 212 tokens"):
        read_target(language_model, ids, ContinuationTarget(text=200 * "a"), [run])
