"""An approximation is a run with the same experts that finds nearly all of what is chosen."""

from __future__ import annotations

import pytest
import torch

from tests.runs import World
from trainer.approximate import ApproximateConfig, approximate
from trainer.errors import UserError
from trainer.gate_config import GateConfig
from trainer.routing import route
from trainer.run import Run
from trainer.train import train


def made(world: World, wanted: float = 0.9, **changes: object) -> ApproximateConfig:
    return ApproximateConfig.model_validate(
        {"name": "cells", "index": "cells", "text": world.text, "tokens": 640, "wanted": wanted} | changes
    )


INDEXES = pytest.mark.parametrize("index", ["projected", "cells"])


@pytest.fixture
def run(world: World) -> Run:
    train(world.config(), world.data, world.store, world.language_model)
    return Run.load("small", world.data)


@INDEXES
def test_it_has_the_same_experts(world: World, run: Run, index: str) -> None:
    found = approximate(run, made(world, 1.0, index=index), world.language_model, world.data, world.store)
    assert (found.of, found.num_experts, found.k) == ("small", 40, 4)
    cells = Run.load("cells", world.data)
    torch.testing.assert_close(cells.layer.gate.rows(slice(None)), run.layer.gate.rows(slice(None)))
    assert torch.equal(cells.layer.table, run.layer.table)
    text = "the old dog sang and the fox ran"
    one, other = (route(world.language_model, it, text) for it in (run, cells))
    same = sum(
        len({it.expert for it in a.experts} & {it.expert for it in b.experts})
        for a, b in zip(one.tokens, other.tokens, strict=True)
    )
    assert same > 0.9 * sum(len(token.experts) for token in one.tokens)


@INDEXES
def test_less_is_asked_for_and_less_is_looked_at(world: World, run: Run, index: str) -> None:
    many = approximate(run, made(world, 1.0, name="many", index=index), world.language_model, world.data, world.store)
    few = approximate(run, made(world, 0.3, name="few", index=index), world.language_model, world.data, world.store)
    assert few.arithmetic < many.arithmetic
    assert few.found < many.found
    assert many.found > 0.95


def test_what_cannot_be_done_is_one_sentence(world: World, run: Run) -> None:
    approximate(run, made(world), world.language_model, world.data, world.store)
    with pytest.raises(UserError, match="The run cells exists"):
        approximate(run, made(world), world.language_model, world.data, world.store)
    again = Run.load("cells", world.data)
    with pytest.raises(UserError, match="no flat gate with a top-k"):
        approximate(again, made(world, name="twice"), world.language_model, world.data, world.store)
    with pytest.raises(UserError, match="cannot be put into 41 groups"):
        approximate(run, made(world, name="many", cells=41), world.language_model, world.data, world.store)
    with pytest.raises(UserError, match="has no cells; leave --cells out"):
        approximate(
            run, made(world, name="many", cells=4, index="projected"), world.language_model, world.data, world.store
        )
    config = again.config.model_copy(update={"tokens": 4096})
    with pytest.raises(UserError, match="An index is made of a flat gate"):
        train(config, world.data, world.store, world.language_model, resume="if-any")
    assert again.config.gate == GateConfig(gate="cells", groups=7, chosen_groups=again.config.gate.chosen_groups)
