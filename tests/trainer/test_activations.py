"""The activation stream: what a step takes depends on text, seed and step alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import pytest
import torch

from tests.runs import World
from trainer.activations import Stream, WindowPlan, batches, beside, windows
from trainer.config import OptimizerConfig, TrainConfig
from trainer.errors import UserError
from trainer.language_model import Capture


def batches_of(world: World, config: TrainConfig, first: int = 0) -> Iterator[Capture]:
    for batch in batches(world.language_model, Stream.of([config]), first):
        yield batch[config.layer]


def test_a_plan_is_whole(world: World) -> None:
    plan = WindowPlan.of(world.config())
    assert (plan.context, plan.batch, plan.window, plan.steps, plan.steps_per_window) == (16, 64, 512, 24, 8)
    assert plan.tokens == 24 * 64


def test_every_token_of_a_window_is_taken_once(world: World) -> None:
    window = next(windows(world.language_model, Stream.of([world.config()])))
    taken = torch.cat([batch[1].input_TI for batch in window.batches(64)])
    assert len(taken) == 512
    assert torch.equal(window.order_T.sort().values, torch.arange(512))
    assert torch.equal(taken[window.order_T.argsort()], window.captured[1].input_TI)


def test_input_and_output_belong_together(world: World) -> None:
    for layer in (0, 2):
        mlp = world.language_model.module.get_submodule(f"model.layers.{layer}.mlp")
        batch = next(batches_of(world, world.config(layer=layer)))
        torch.testing.assert_close(mlp(batch.input_TI), batch.output_TO)


def test_starting_later_is_the_same_as_having_come_there(world: World) -> None:
    config = world.config()
    whole = list(batches_of(world, config))
    assert len(whole) == 24
    for first in (0, 3, 8, 13, 23, 24):
        later = list(batches_of(world, config, first))
        assert len(later) == 24 - first
        assert all(torch.equal(a.input_TI, b.input_TI) for a, b in zip(later, whole[first:], strict=True))


def test_layers_in_one_pass_give_what_each_gives_alone(world: World) -> None:
    configs = [world.config(f"l{layer}", layer=layer) for layer in (2, 0, 2)]
    stream = Stream.of(configs)
    assert stream.layers == (0, 2)
    together = list(batches(world.language_model, stream))
    for config in configs:
        alone = list(batches_of(world, config))
        for batch, own in zip(together, alone, strict=True):
            assert torch.equal(batch[config.layer].input_TI, own.input_TI)
            assert torch.equal(batch[config.layer].output_TO, own.output_TO)


def test_nothing_behind_the_last_layer_is_run(world: World) -> None:
    ran: list[int] = []
    blocks = world.language_model.module.get_submodule("model.layers")
    for number, block in enumerate(blocks.children()):
        block.register_forward_pre_hook(lambda _block, _inputs, number=number: ran.append(number))
    next(batches_of(world, world.config(layer=1)))
    assert set(ran) == {0, 1}


@pytest.mark.parametrize(
    "changes",
    [{"tokens": 64}, {"seed": 1}, {"optimizer": OptimizerConfig(batch=32, window=512)}, {"language_model": "other"}],
)
def test_runs_with_other_batches_share_no_stream(world: World, changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="fitted together"):
        Stream.of([world.config(), world.config(**changes)])


def test_runs_with_other_starting_values_may_share_one(world: World) -> None:
    assert Stream.of([world.config(seed=1), world.config(seed=2, text_seed=1)]).seed == 1


def test_another_seed_is_another_order(world: World) -> None:
    one, other = (next(batches_of(world, world.config(seed=seed))) for seed in (0, 1))
    assert not torch.equal(one.input_TI, other.input_TI)


def test_a_window_is_mixed(world: World) -> None:
    window = next(islice(windows(world.language_model, Stream.of([world.config()])), 1, None))
    assert not torch.equal(window.order_T, torch.arange(len(window.order_T)))


@pytest.mark.parametrize("first", [0, 3, 8, 13])
def test_a_first_window_that_was_read_before_is_not_read_again(world: World, first: int) -> None:
    stream = Stream.of([world.config()])
    whole = list(batches(world.language_model, stream, first))
    begun = next(windows(world.language_model, stream))
    again = list(batches(world.language_model, stream, first, begun=begun))
    assert len(again) == 24 - first
    assert all(torch.equal(a[1].output_TO, b[1].output_TO) for a, b in zip(again, whole, strict=True))


def test_windows_that_are_read_beside_fitting_are_the_same(world: World) -> None:
    stream = Stream.of([world.config()])
    plain = list(windows(world.language_model, stream))
    with closing(beside(windows(world.language_model, stream), torch.device("cuda"))) as found:
        others = list(found)
    assert len(plain) == len(others) == 3
    for one, other in zip(plain, others, strict=True):
        assert torch.equal(one.captured[1].output_TO, other.captured[1].output_TO)
        assert torch.equal(one.order_T, other.order_T)
    unread = windows(world.language_model, stream)
    assert beside(unread, torch.device("cpu")) is unread, "on a CPU the two would take each other's cores"
