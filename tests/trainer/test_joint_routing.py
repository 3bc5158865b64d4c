"""Several layers in one forward pass: each run sees what it sees alone."""

from __future__ import annotations

import pytest

from tests.language_models import tiny_language_model
from tests.layers import random_layer
from tests.runs import World
from trainer.config import TrainConfig
from trainer.errors import UserError
from trainer.joint_routing import route_together
from trainer.language_model import LanguageModel
from trainer.routing import route
from trainer.run import Run

TEXT = "the old fox sang"


def run_of(world: World, name: str, layer: int) -> Run:
    run = Run(world.data, TrainConfig.model_validate(world.config(name=name, layer=layer).model_dump()))
    run.__dict__["layer"] = random_layer(widths=(16, 20, 16), seed=layer)
    return run


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
            assert token.kl == pytest.approx(alone.kl, abs=1e-4)
            assert [it.expert for it in token.experts] == [it.expert for it in alone.experts]
            assert [it.coefficient for it in token.experts] == pytest.approx(
                [it.coefficient for it in alone.experts], abs=1e-4
            )
            assert {it.id for it in token.predictions} == {it.id for it in alone.predictions}


def test_refusals(world: World) -> None:
    language_model: LanguageModel = world.language_model
    one = run_of(world, "one", 1)
    with pytest.raises(UserError, match="both of layer 1"):
        route_together(language_model, [one, run_of(world, "two", 1)], TEXT)
    with pytest.raises(UserError, match="named twice"):
        route_together(language_model, [one, one], TEXT)
    with pytest.raises(UserError, match="no text"):
        route_together(language_model, [one], "")
