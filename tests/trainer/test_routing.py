"""Routing of a text against the layer itself and against two plain forward passes."""

from __future__ import annotations

import pytest
import torch

from tests.language_models import tiny_language_model
from tests.runs import World
from trainer.errors import TooLongError, UserError
from trainer.routing import prompt_ids, route
from trainer.run import Run
from trainer.train import train

TEXT = "the old fox sang, café ☕"


@pytest.fixture
def run(world: World) -> Run:
    train(world.config(), world.data, world.store, world.language_model)
    return Run.load("small", world.data)


def test_tokens_are_those_of_the_text(world: World, run: Run) -> None:
    routing = route(world.language_model, run, TEXT)
    assert [token.start for token in routing.tokens] == [True] + [False] * len(TEXT.encode())
    assert "".join(token.text for token in routing.tokens[1:]) == TEXT


def test_experts_are_the_layers(world: World, run: Run) -> None:
    routing = route(world.language_model, run, TEXT)
    ids = torch.tensor([prompt_ids(world.language_model, TEXT)])
    chosen = run.layer.route(world.language_model.capture(1, ids).input_TI)
    for token, coefficients, experts in zip(routing.tokens, *(values.tolist() for values in chosen), strict=True):
        wanted = [(expert, value) for expert, value in zip(experts, coefficients, strict=True) if value > 0]
        assert [expert.expert for expert in token.experts] == [expert for expert, _ in wanted]
        assert [expert.coefficient for expert in token.experts] == pytest.approx(
            [value for _, value in wanted], rel=1e-4
        )
        assert sum(expert.share for expert in token.experts) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("family", ["llama", "opt", "gpt-neox", "falcon"])
def test_predictions_and_divergence_are_those_of_two_forward_passes(world: World, run: Run, family: str) -> None:
    language_model = tiny_language_model(family)
    routing = route(language_model, run, TEXT)
    ids = torch.tensor([prompt_ids(language_model, TEXT)])
    original = language_model.logits(ids)[0].log_softmax(-1)
    with language_model.replace({1: run.layer}):
        replaced = language_model.logits(ids)[0].log_softmax(-1)
    kl_T = (original.exp() * (original - replaced)).sum(-1)
    assert [token.kl for token in routing.tokens] == pytest.approx(kl_T.tolist(), rel=1e-3, abs=1e-6)
    for place, token in enumerate(routing.tokens):
        assert token.predictions[0].original == pytest.approx(original[place].max().exp().item(), rel=1e-5)
        for prediction in token.predictions:
            assert prediction.original == pytest.approx(original[place, prediction.id].exp().item(), rel=1e-3)
            assert prediction.replaced == pytest.approx(replaced[place, prediction.id].exp().item(), rel=1e-3)


def test_empty_and_too_long_text(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="type some"):
        route(world.language_model, run, "")
    with pytest.raises(TooLongError, match="takes 128"):
        route(world.language_model, run, "x" * 128)
    assert len(route(world.language_model, run, "x" * 127).tokens) == 128


def test_a_run_of_another_language_model(world: World, run: Run) -> None:
    layer = run.layer
    run.__dict__["layer"] = type(layer)(layer.config.model_copy(update={"input_width": 8}))
    with pytest.raises(UserError, match="that it was fitted to"):
        route(tiny_language_model("gpt2"), run, TEXT)
