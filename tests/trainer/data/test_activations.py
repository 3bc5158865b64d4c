"""Activation buffers: the batch of a step depends only on text, seed and step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import torch

from mxd.trainer.config import OptimizerConfig, TrainConfig
from mxd.trainer.data.activations import (
    LiveActivations,
    StreamSpec,
    batches,
    prefetch_on_gpu,
)
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import MlpActivations
from tests.helpers.runs import World


def batches_of(world: World, config: TrainConfig, first: int = 0) -> Iterator[MlpActivations]:
    for batch in batches(LiveActivations(world.language_model), StreamSpec.from_configs([config]), first):
        yield batch[config.layer]


def test_every_token_of_a_buffer_is_used_once(world: World) -> None:
    buffer = next(LiveActivations(world.language_model).buffers(StreamSpec.from_configs([world.config()])))
    used = torch.cat([batch[1].input_TI for batch in buffer.batches(64)])
    assert len(used) == 512
    assert torch.equal(buffer.order_T.sort().values, torch.arange(512))
    assert torch.equal(used[buffer.order_T.argsort()], buffer.captured[1].input_TI)


def test_inputs_and_outputs_match(world: World) -> None:
    for layer in (0, 2):
        mlp = world.language_model.module.get_submodule(f"model.layers.{layer}.mlp")
        batch = next(batches_of(world, world.config(layer=layer)))
        torch.testing.assert_close(mlp(batch.input_TI), batch.output_TO)


def test_resuming_at_a_later_step_gives_the_same_batches(world: World) -> None:
    config = world.config()
    whole = list(batches_of(world, config))
    assert len(whole) == 24
    for first in (0, 3, 8, 13, 23, 24):
        later = list(batches_of(world, config, first))
        assert len(later) == 24 - first
        assert all(torch.equal(a.input_TI, b.input_TI) for a, b in zip(later, whole[first:], strict=True))


def test_layers_on_one_pass_have_the_batches_of_separate_passes(world: World) -> None:
    configs = [world.config(f"l{layer}", layer=layer) for layer in (2, 0, 2)]
    stream = StreamSpec.from_configs(configs)
    assert stream.layers == (0, 2)
    together = list(batches(LiveActivations(world.language_model), stream))
    for config in configs:
        alone = list(batches_of(world, config))
        for batch, own in zip(together, alone, strict=True):
            assert torch.equal(batch[config.layer].input_TI, own.input_TI)
            assert torch.equal(batch[config.layer].output_TO, own.output_TO)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": 64},
        {"seed": 1},
        {"optimizer": OptimizerConfig(batch_tokens=32, buffer_tokens=512)},
        {"language_model": "other"},
    ],
)
def test_runs_with_different_batches_are_rejected(world: World, changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="trained together"):
        StreamSpec.from_configs([world.config(), world.config(**changes)])


@pytest.mark.parametrize("first", [0, 3, 8, 13])
def test_a_precomputed_first_buffer_is_reused(world: World, first: int) -> None:
    stream = StreamSpec.from_configs([world.config()])
    whole = list(batches(LiveActivations(world.language_model), stream, first))
    first_buffer = next(LiveActivations(world.language_model).buffers(stream))
    again = list(batches(LiveActivations(world.language_model), stream, first, first=first_buffer))
    assert len(again) == 24 - first
    assert all(torch.equal(a[1].output_TO, b[1].output_TO) for a, b in zip(again, whole, strict=True))


def test_prefetched_buffers_are_identical(world: World) -> None:
    stream = StreamSpec.from_configs([world.config()])
    plain = list(LiveActivations(world.language_model).buffers(stream))
    with closing(
        prefetch_on_gpu(LiveActivations(world.language_model).buffers(stream), torch.device("cuda"))
    ) as prefetched:
        others = list(prefetched)
    assert len(plain) == len(others) == 3
    for one, other in zip(plain, others, strict=True):
        assert torch.equal(one.captured[1].output_TO, other.captured[1].output_TO)
        assert torch.equal(one.order_T, other.order_T)
    unread = LiveActivations(world.language_model).buffers(stream)
    assert prefetch_on_gpu(unread, torch.device("cpu")) is unread, "on a CPU the two would take each other's cores"
