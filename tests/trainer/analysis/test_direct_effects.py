"""Direct effects against their definition, and residual streams in every architecture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mxd.trainer.analysis.effects import direct_effects, expert_writes
from mxd.trainer.analysis.results import ExpertWrites
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers.base import Routing
from mxd.trainer.layers.mxd import MxD
from tests.helpers.language_models import CONFIGS, SCALED, tiny_language_model
from tests.helpers.runs import World
from tests.trainer.inference.test_steering import make_run

TEXT = "the old fox"


@pytest.mark.parametrize("family", sorted({**CONFIGS, **SCALED}))
def test_unembedding_the_residual_gives_the_logits(family: str) -> None:
    language_model = tiny_language_model(family)
    ids = torch.tensor([prompt_ids(language_model, TEXT)])
    residual_TW = language_model.residual(ids)[0]
    torch.testing.assert_close(language_model.unembed(residual_TW), language_model.logits(ids)[0])
    assert not language_model.module.get_submodule("")._forward_hooks


@pytest.mark.parametrize("position", [0, 5, 11])
def test_effects_equal_their_definition(world: World, position: int) -> None:
    run, language_model = make_run(world), world.language_model
    layer = run.layer
    assert isinstance(layer, MxD)
    ids = torch.tensor([prompt_ids(language_model, TEXT)])
    x_1I = language_model.capture(1, ids).input_TI[position : position + 1]
    residual_W = language_model.residual(ids)[0, position]
    norm, head = (language_model.module.get_submodule(name) for name in ("model.norm", "lm_head"))
    whole_V = head(norm(residual_W)).log_softmax(-1)
    effects = direct_effects(language_model, run, TEXT, position)
    assert [effect.activation for effect in effects] == sorted((e.activation for e in effects), reverse=True)
    for effect in effects:
        own_O = effect.activation * (layer.encode(x_1I) @ layer.expert_matrix(effect.expert))[0]
        change_V = whole_V - head(norm(residual_W - own_O)).log_softmax(-1)
        for token in (*effect.promoted, *effect.suppressed):
            assert token.change == pytest.approx(change_V[token.id].item(), abs=1e-4)
        assert effect.promoted[0].change == pytest.approx(change_V.max().item(), abs=1e-4)
        assert effect.suppressed[0].change == pytest.approx(change_V.min().item(), abs=1e-4)


def test_what_an_expert_writes_is_the_mean_of_its_effects(world: World) -> None:
    run, language_model = make_run(world), world.language_model
    ids = prompt_ids(language_model, TEXT)
    expert = direct_effects(language_model, run, TEXT, 5)[0].expert
    active = [[effect.expert for effect in direct_effects(language_model, run, TEXT, p)] for p in range(len(ids))]
    positions = [position for position, experts in enumerate(active) if expert in experts]
    examples = [(ids, position) for position in positions]
    inactive = [(ids, 0)] if 0 not in positions else []
    writes, nothing = expert_writes(language_model, run, [(expert, [*examples, *inactive]), (expert + 1, inactive)])
    assert nothing == ExpertWrites(expert + 1, 0, (), ())
    assert writes.examples == len(positions)
    layer = run.layer
    assert isinstance(layer, MxD)
    norm, head = (language_model.module.get_submodule(name) for name in ("model.norm", "lm_head"))
    x_TI = language_model.capture(1, torch.tensor([ids])).input_TI
    residual_TW = language_model.residual(torch.tensor([ids]))[0]
    routing = layer.route(x_TI)
    activation_T1 = (routing.activations_TK * (routing.indices_TK == expert)).sum(dim=1, keepdim=True)
    own_TO = activation_T1 * (layer.encode(x_TI) @ layer.expert_matrix(expert))
    change_TV = head(norm(residual_TW)).log_softmax(-1) - head(norm(residual_TW - own_TO)).log_softmax(-1)
    change_V = change_TV[positions].mean(dim=0)
    assert writes.promoted[0].change == pytest.approx(change_V.max().item(), abs=1e-4)
    assert writes.suppressed[0].change == pytest.approx(change_V.min().item(), abs=1e-4)
    assert all(token.change == pytest.approx(change_V[token.id].item(), abs=1e-4) for token in writes.promoted)


@pytest.mark.parametrize("family", ["gemma2", "falcon", "granite"])
def test_effects_and_vectors_are_what_the_block_adds(
    world: World, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma 2 normalises the MLP's output before it is added, so plain hooks see another vector than the layer's."""
    language_model = tiny_language_model(family)
    run = make_run(replace(world, language_model=language_model))
    monkeypatch.setattr("mxd.trainer.analysis.effects.check_fits", lambda *_: None)
    module, position = language_model.module, 5
    blocks = language_model.architecture.blocks
    ids = torch.tensor([prompt_ids(language_model, TEXT)])
    x_TI = language_model.capture(1, ids).input_TI
    seen: dict[str, Tensor] = {}

    def changed(change_TO: Tensor | None) -> Tensor:
        """Output of block 1 without a vector in its MLP's output."""
        mlp = blocks[1].get_submodule("mlp")
        hooks = [blocks[1].register_forward_hook(lambda _m, _x, y: seen.update(block=first(y).clone()))]
        if change_TO is not None:
            hooks.append(mlp.register_forward_hook(lambda _m, _x, y: y - change_TO))
        with torch.no_grad():
            module(input_ids=ids, use_cache=False)
        for hook in hooks:
            hook.remove()
        return seen["block"][0]

    def log_p(taken_W: Tensor) -> Tensor:
        def take(_module: nn.Module, _inputs: Any, output: Any) -> Any:
            hidden = first(output).clone()
            hidden[0, position] -= taken_W
            return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

        hook = blocks[-1].register_forward_hook(take)
        with torch.no_grad():
            logits_V: Tensor = module(input_ids=ids, use_cache=False).logits[0, position]
        hook.remove()
        return logits_V.log_softmax(-1)

    whole_TW, whole_V = changed(None), log_p(torch.zeros(16))
    effects = direct_effects(language_model, run, TEXT, position)
    assert effects
    for effect in effects:
        change_TO = torch.zeros(len(x_TI), 16)
        x_1I = x_TI[position : position + 1]
        routing = Routing(torch.tensor([[effect.activation]]), torch.tensor([[effect.expert]]))
        change_TO[position] = run.layer.contribution(run.layer.dense_output(x_1I), routing)[0]
        change_V = whole_V - log_p((whole_TW - changed(change_TO))[position])
        for token in (*effect.promoted, *effect.suppressed):
            assert token.change == pytest.approx(change_V[token.id].item(), abs=1e-4)


def first(output: Any) -> Tensor:
    """Hidden states of a block's output."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_token_without_active_experts_has_no_effects(world: World, family: str) -> None:
    run = make_run(world)
    run.layer.gate.bias.data.fill_(-1e3)
    assert direct_effects(tiny_language_model(family), run, TEXT, 3) == ()
