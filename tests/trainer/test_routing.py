"""Routing of a text against the layer itself, alone and with other layers."""

from __future__ import annotations

import pytest
import torch

from tests.language_models import tiny_language_model
from tests.runs import World, run_of
from trainer.errors import TooLongError, UserError
from trainer.language_model import LanguageModel
from trainer.routing import prompt_ids, route, route_together
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


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "opt"])
def test_together_is_as_alone(world: World, family: str) -> None:
    language_model = tiny_language_model(family)
    runs = [run_of(world, "late", 1), run_of(world, "early", 0)]
    together = route_together(language_model, runs, TEXT)
    assert [routing.run for routing in together] == ["late", "early"]
    for run, found in zip(runs, together, strict=True):
        wanted = route(language_model, run, TEXT)
        for token, alone in zip(found.tokens, wanted.tokens, strict=True):
            assert (token.id, token.text, token.start) == (alone.id, alone.text, alone.start)
            assert [it.expert for it in token.experts] == [it.expert for it in alone.experts]
            assert [it.coefficient for it in token.experts] == pytest.approx(
                [it.coefficient for it in alone.experts], abs=1e-4
            )


def test_runs_that_cannot_be_watched_together(world: World) -> None:
    language_model: LanguageModel = world.language_model
    one = run_of(world, "one", 1)
    with pytest.raises(UserError, match="both of layer 1"):
        route_together(language_model, [one, run_of(world, "two", 1)], TEXT)
    with pytest.raises(UserError, match="named twice"):
        route_together(language_model, [one, one], TEXT)
    with pytest.raises(UserError, match="no text"):
        route_together(language_model, [one], "")
