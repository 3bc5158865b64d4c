"""The activation stream: what a step takes depends on text, seed and step alone."""

from __future__ import annotations

from itertools import islice

import torch

from tests.runs import World
from trainer.activations import WindowPlan, batches, windows


def test_a_plan_is_whole(world: World) -> None:
    plan = WindowPlan.of(world.config())
    assert (plan.context, plan.batch, plan.window, plan.steps, plan.steps_per_window) == (16, 64, 512, 24, 8)
    assert plan.tokens == 24 * 64


def test_every_token_of_a_window_is_taken_once(world: World) -> None:
    window = next(windows(world.language_model, world.config()))
    taken = torch.cat([batch.input_TI for batch in window.batches(64)])
    assert len(taken) == 512
    assert torch.equal(window.order_T.sort().values, torch.arange(512))
    assert torch.equal(taken[window.order_T.argsort()], window.captured.input_TI)


def test_input_and_output_belong_together(world: World) -> None:
    mlp = world.language_model.module.get_submodule("model.layers.1.mlp")
    batch = next(batches(world.language_model, world.config()))
    torch.testing.assert_close(mlp(batch.input_TI), batch.output_TO)


def test_starting_later_is_the_same_as_having_come_there(world: World) -> None:
    config = world.config()
    whole = list(batches(world.language_model, config))
    assert len(whole) == 24
    for first in (0, 3, 8, 13, 23, 24):
        later = list(batches(world.language_model, config, first))
        assert len(later) == 24 - first
        assert all(torch.equal(a.input_TI, b.input_TI) for a, b in zip(later, whole[first:], strict=True))


def test_another_seed_is_another_order(world: World) -> None:
    one, other = (next(batches(world.language_model, world.config(seed=seed))) for seed in (0, 1))
    assert not torch.equal(one.input_TI, other.input_TI)


def test_a_window_is_mixed(world: World) -> None:
    window = next(islice(windows(world.language_model, world.config()), 1, None))
    assert not torch.equal(window.order_T, torch.arange(len(window.order_T)))
