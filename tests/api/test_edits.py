"""Conditional edits in a user's own loop equal the reference that evaluates every condition token by token."""

import json
import string
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

import mxd
from mxd.api.loading import resolve_medians
from mxd.api.models import parse_edits
from mxd.trainer.config import Edit
from mxd.trainer.language_model.mlp_hooks import like_weights
from mxd.trainer.language_model.model import cache_argument
from mxd.trainer.language_model.tokenizer import prompt_ids
from tests.api.conftest import User
from tests.helpers.layers import random_layer
from tests.helpers.runs import World, run_of, small_world
from tests.trainer.inference.test_conditions import PROMPT, UNITS, Reference

NEW_TOKENS = 8


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return small_world(tmp_path_factory.mktemp("edits"))


@pytest.fixture(scope="module")
def layer(world: World) -> mxd.Layer:
    run = run_of(world, "one", 1)
    vars(run).update(units=UNITS["one"], tokenizer=world.language_model.tokenizer)
    layer = mxd.Layer(run)
    layer.reference.model = world.language_model.module, world.language_model.tokenizer
    return layer


def written(world: World, ids_BT: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
    """Ids [B, T] of sampled continuations with their prompts, and log-probabilities of the new tokens [B, T, V]."""
    torch.manual_seed(0)
    output = world.language_model.module.generate(
        ids_BT,
        attention_mask=torch.ones_like(ids_BT),
        max_new_tokens=NEW_TOKENS,
        do_sample=True,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
        **settings,
    )
    return output.sequences, torch.stack(output.logits, dim=1).log_softmax(-1)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(
    "edits",
    [
        ["3:add:8@generated", "7:ablate@prompt"],
        ["3:add:8@first:3", "7:set:5@when:3>0.1"],
        ["3:set:8@ramp:4", "7:scale:-9@fade:5@when:3<=0.4@when:9<=0"],
        ["3:add:8@until:e", "7:add:6"],
    ],
)
def test_conditions_equal_the_reference(world: World, layer: mxd.Layer, edits: list[str], use_cache: bool) -> None:
    ids_BT = torch.tensor([prompt_ids(world.language_model, text) for text in (PROMPT, PROMPT[::-1])])
    prompt = ids_BT.shape[1]
    with layer.steer(world.language_model.module, edits):
        written(world, ids_BT[:, :-1])  # an earlier text leaves no trace
        ids, log_p_BTV = written(world, ids_BT, use_cache=use_cache)
    for row_T, log_p_TV in zip(ids.tolist(), log_p_BTV, strict=True):
        reference = Reference(world, [layer.run], parse_edits(edits), row_T, prompt).log_probabilities()
        torch.testing.assert_close(log_p_TV, reference[prompt - 1 : -1], atol=1e-3, rtol=0)
    plain = written(world, ids_BT)[1]
    assert not torch.allclose(plain, log_p_BTV, atol=1e-3)


@pytest.mark.parametrize("use_cache", [True, False])
def test_beams_take_their_histories_along(world: World, layer: mxd.Layer, use_cache: bool) -> None:
    ids_BT = torch.tensor([prompt_ids(world.language_model, text) for text in (PROMPT, PROMPT[::-1])])
    prompt, model = ids_BT.shape[1], world.language_model.module
    beams = {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 0.0, "max_new_tokens": NEW_TOKENS}
    settings: dict[str, Any] = {"attention_mask": torch.ones_like(ids_BT), "pad_token_id": 0, "use_cache": use_cache}
    settings |= beams | {"output_scores": True, "return_dict_in_generate": True}
    plain = model.generate(ids_BT, **settings).sequences[:, prompt:]
    letters = sorted(set(world.language_model.tokenizer.decode(plain.flatten())) & set(string.printable))
    edits = [f"{expert}:add:3@until:{json.dumps(letter)}" for expert, letter in enumerate(letters)]
    with layer.steer(model, edits):
        output = model.generate(ids_BT, **settings)
    for row_T, score in zip(output.sequences, output.sequences_scores, strict=True):
        log_p_TV = Reference(world, [layer.run], parse_edits(edits), row_T.tolist(), prompt).log_probabilities()
        log_p_T = log_p_TV[prompt - 1 : -1].gather(1, row_T[prompt:, None]).squeeze(1)
        torch.testing.assert_close(score, log_p_T.sum(), atol=1e-3, rtol=0)


def test_a_prompt_may_be_cached_in_parts(world: World, layer: mxd.Layer) -> None:
    ids_1T = torch.tensor([prompt_ids(world.language_model, PROMPT)])
    model = world.language_model.module
    with torch.no_grad(), layer.steer(model, ["3:add:8@prompt"]):
        together = model(ids_1T).logits[0, -1]
        cache = DynamicCache()
        model(ids_1T[:, :5], use_cache=True, **{cache_argument(model): cache})
        parts = model(ids_1T[:, 5:], **{cache_argument(model): cache}).logits[0, -1]
    torch.testing.assert_close(parts, together, atol=1e-4, rtol=0)


def test_a_pass_that_continues_a_text_of_unknown_length_is_an_error(world: World, layer: mxd.Layer) -> None:
    ids_1T, model = torch.tensor([prompt_ids(world.language_model, PROMPT)]), world.language_model.module
    with layer.steer(model, ["3:add:8@first:3"]):
        model(ids_1T)
        with pytest.raises(mxd.UserError, match=rf"mask has {ids_1T.shape[1]} tokens, the cache 0 and the input 1\."):
            model(ids_1T[:, -1:], attention_mask=torch.ones_like(ids_1T))
        with pytest.raises(mxd.UserError, match="need input_ids or inputs_embeds"):
            model(attention_mask=torch.ones_like(ids_1T))


def test_invalid_edits_are_one_line_errors(world: World, layer: mxd.Layer) -> None:
    model = world.language_model.module
    for edit, message in {
        "3:louder": r"Invalid edit: '3:louder'\. Write EXPERT:scale",
        "3:ablate@when:33>0": "experts 0 to 32",
        "3:ablate@when:two/4>0": "not loaded",
        "3:ablate@when:4>median": r'Run mxd\.index\("one"\)',
    }.items():
        with pytest.raises(mxd.UserError, match=message):
            layer.steer(model, [edit])
    with layer.steer(model, ["3:add:8@first:3"]), pytest.raises(mxd.UserError, match="passed to steer"):
        model.model(torch.tensor([[1, 2]])) if hasattr(model, "model") else model.transformer(torch.tensor([[1, 2]]))
    assert not model._forward_pre_hooks


def test_medians_are_read_from_the_index(user: User) -> None:
    (edit,) = resolve_medians(user.run.run, (Edit.model_validate("3:ablate@when:3>median"),))
    assert edit.when is not None
    assert 0 <= float(edit.when.gates[0].level) < 1


def test_a_layer_on_another_device_than_the_model_warns() -> None:
    layer = random_layer("mxd")
    same = like_weights(torch.ones(2, 12, dtype=torch.float64), layer)
    assert same.dtype == torch.float32
    with pytest.warns(UserWarning, match=r"layer is on meta, the model on cpu.* Move the layer"):
        assert like_weights(torch.ones(2, 12), layer.to("meta")).device == torch.device("meta")
