"""Layers in a user's own loops: steered, replaced and attached, with the model exactly restored."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

import mxd
from tests.api.conftest import User, user_model

PROMPT = "the old fox"


def snapshot(model: nn.Module) -> Any:
    """Classes, modes, attributes and hooks of all modules; identity, values and flags of all parameters."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    modules = [
        (name, type(it), it.training, sorted(vars(it)), [list(getattr(it, hook)) for hook in hooks])
        for name, it in model.named_modules()
    ]
    return modules, [(name, id(it), it.requires_grad, it.tolist()) for name, it in model.named_parameters()]


def logits(user: User, model: PreTrainedModel | None = None) -> Tensor:
    with torch.no_grad():
        output: Tensor = (model or user.model)(**user.tokenizer(PROMPT, return_tensors="pt")).logits
    return output


def busiest(user: User) -> int:
    activations = user.run.activations(user.model, PROMPT)
    return int(activations.sum(dim=(0, 1)).to_dense().argmax())


def test_steering_agrees_with_the_dashboards_engine(user: User) -> None:
    edits: dict[int, Any] = {busiest(user): +6, 3: "ablate", 5: ("set", 2), 7: ("scale", 0.5)}
    sampling = {"max_tokens": 12, "temperature": 0, "repetition_penalty": 1.0}
    generation = mxd.generate(user.run, PROMPT, edits, model=user.model, tokenizer=user.tokenizer, **sampling)
    start = str(user.tokenizer.decode([0]))
    ids, model = user.tokenizer(start + PROMPT, return_tensors="pt"), cast(Any, user.model)
    with user.run.steer(user.model, edits):
        written = model.generate(**ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
    own = str(user.tokenizer.decode(written[0, ids["input_ids"].shape[1] :], skip_special_tokens=False))
    assert own.startswith(generation.text("steered").removesuffix(start)[:8])
    assert "Δ log p" in generation._repr_html_()


def test_the_model_is_exactly_restored(user: User) -> None:
    before, plain = snapshot(user.model), logits(user)
    expert = busiest(user)
    uses: list[Callable[[], Any]] = [
        lambda: user.run.steer(user.model, {expert: 6}),
        lambda: user.run.steer(user.model, {expert: 6}, mode="replace"),
        lambda: user.run.replace(user.model),
        lambda: user.run.attach(user.model),
        lambda: user.run.attach(user.model, {expert: 6}, mode="residual"),
    ]
    for use in uses:
        with use():
            assert not torch.equal(logits(user), plain)
        assert torch.equal(logits(user), plain)
    with pytest.raises(ZeroDivisionError), user.run.steer(user.model, {expert: 6}):
        _ = 1 / 0
    mxd.route(user.run, PROMPT, model=user.model, tokenizer=user.tokenizer)
    mxd.trace(user.run, PROMPT, model=user.model, tokenizer=user.tokenizer, nodes=4)
    assert snapshot(user.model) == before


def test_replacing_computes_the_layer_and_steering_nests_in_it(user: User) -> None:
    expert = busiest(user)
    with user.run.replace(user.model):
        replaced = logits(user)
        with user.run.steer(user.model, {expert: 6}):
            nested = logits(user)
        assert torch.equal(logits(user), replaced)
    with user.run.steer(user.model, {expert: 6}, mode="replace"):
        torch.testing.assert_close(logits(user), nested)


def test_attached_parameters_train_and_copies_are_independent(user: User) -> None:
    attached = user.run.attach(user.model)
    with pytest.raises(mxd.UserError, match="already has an attached layer"):
        user.run.attach(user.model)
    names = [name for name, _ in user.model.named_parameters() if ".mxd." in name]
    assert names
    user.model(**user.tokenizer(PROMPT, return_tensors="pt")).logits.sum().backward()
    assert user.run.core.table.grad is not None
    user.model.zero_grad()
    twin = copy.deepcopy(user.model)
    for name, parameter in twin.named_parameters():
        if ".mxd." in name:
            parameter.data.zero_()
    assert not torch.equal(logits(user, twin), logits(user))
    attached.detach()
    attached.detach()
    assert not [name for name, _ in user.model.named_parameters() if ".mxd." in name]


def test_a_model_with_an_attached_layer_is_not_saved_without_it(user: User, tmp_path: Path) -> None:
    first, second = user.run.attach(user.model), mxd.load(user.run.run.folder)
    vars(second.run)["config"] = second.run.config.model_copy(update={"layer": 0})
    for handle in (first, second.attach(user.model)):
        for model in (user.model, cast(PreTrainedModel, user.model.base_model)):
            with pytest.raises(mxd.UserError, match="transformers would load the original MLP again"):
                model.save_pretrained(tmp_path / "model")
        handle.detach()
    user.model.save_pretrained(tmp_path / "model")
    loaded = type(user.model).from_pretrained(tmp_path / "model")
    torch.testing.assert_close(logits(user, loaded), logits(user))


def test_a_library_that_wraps_an_attached_model_keeps_its_wrapper(user: User) -> None:
    mlp = next(it for name, it in user.model.named_modules() if name.endswith(".1.mlp"))
    calls: list[Tensor] = []
    plain, attached = logits(user), user.run.attach(user.model)
    inner = mlp.forward

    def wrapper(x: Tensor) -> Tensor:
        calls.append(x)
        output: Tensor = inner(x)
        return output

    mlp.forward = wrapper  # as accelerate and nnsight do
    assert not torch.equal(logits(user), plain)
    attached.detach()
    assert torch.equal(logits(user), plain)
    assert len(calls) == 2
    del mlp.forward


def test_a_layer_of_another_model_is_an_error(user: User) -> None:
    other = user_model("falcon")
    other.config.num_hidden_layers = 99
    with pytest.raises(mxd.UserError, match="no list of 99 blocks"):
        user.run.steer(other, {1: 6})
    with pytest.raises(mxd.UserError, match="Invalid change of expert 1: 'louder'"):
        user.run.steer(user.model, {1: "louder"})  # type: ignore[dict-item]  # what users try
    with pytest.raises(mxd.UserError, match="experts 0 to 39"):
        user.run.steer(user.model, {99: 6})
