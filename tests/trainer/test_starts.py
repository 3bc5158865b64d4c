"""Starting values: what each start promises of the very first answer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.language_models import tiny_language_model
from tests.layers import flat_gate
from tests.runs import World
from trainer.activations import Stream, windows
from trainer.config import Start, TrainConfig
from trainer.errors import UserError
from trainer.fitting import Fit
from trainer.language_model import Capture
from trainer.layers.mxd import MxD
from trainer.layers.sparse import SparseLayer
from trainer.starts import chosen_start


def sample_of(world: World, config: TrainConfig) -> Capture:
    return next(windows(world.language_model, Stream.of([config]))).captured[config.layer]


def started(world: World, start: Start, **changes: Any) -> tuple[SparseLayer, Capture]:
    config = world.config(start=start, **changes)
    sample = sample_of(world, config)
    return Fit.start(config, world.language_model, 24, sample=sample).layer, sample


def first_error(layer: SparseLayer, sample: Capture) -> float:
    with torch.no_grad():
        return unexplained(layer(sample.read_by(layer)).output_TO, sample)


def unexplained(output_TO: torch.Tensor, sample: Capture) -> float:
    """Share of the variance of the MLP's output; 1 for its mean."""
    centred_TO = sample.output_TO - sample.output_TO.mean(dim=0)
    return float((output_TO - sample.output_TO).square().sum() / centred_TO.square().sum())


def test_the_full_start_answers_like_the_mlp_with_its_routing_frozen_too(world: World) -> None:
    layer, sample = started(world, "full")
    assert isinstance(layer, MxD)
    with torch.no_grad():
        routing = layer.route(sample.input_TI)
        frozen_O = layer.mixing(routing).mean(dim=0)
        frozen_TO = frozen_O * layer.dense_output(sample.input_TI)
    assert unexplained(frozen_TO, sample) < 0.05


@pytest.mark.parametrize("method", ["mxd", "transcoder", "skip-transcoder", "autoencoder"])
def test_examples_are_better_than_the_best_constant_from_the_first_step(world: World, method: str) -> None:
    layer, sample = started(world, "examples", method=method)
    assert first_error(layer, sample) < 0.9
    used = layer.route(sample.read_by(layer)).indices_TK.unique()
    assert len(used) == layer.config.num_experts


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_examples_begin_with_experts_that_write_one_direction(world: World, family: str) -> None:
    world = World(world.data, world.store, tiny_language_model(family), world.text)
    layer, sample = started(world, "examples")
    assert isinstance(layer, MxD)
    dense_TO = layer.dense_output(sample.input_TI)
    torch.testing.assert_close(dense_TO, torch.ones_like(dense_TO))


def test_with_its_mixing_frozen_a_start_at_examples_is_a_constant(world: World) -> None:
    layer, sample = started(world, "examples")
    assert isinstance(layer, MxD)
    with torch.no_grad():
        frozen_O = layer.mixing(layer.route(sample.input_TI)).mean(dim=0)
        frozen_TO = frozen_O * layer.dense_output(sample.input_TI)
    assert frozen_TO.std(dim=0).max() < 1e-5


def test_more_experts_than_tokens_still_differ(world: World) -> None:
    layer, _ = started(world, "examples", num_experts=700)
    assert len(flat_gate(layer).weight.unique(dim=0)) == 700


def test_the_same_settings_give_the_same_start(world: World) -> None:
    first, second = (started(world, "examples")[0].state_dict() for _ in range(2))
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_the_encoder_start_is_the_mlps_own(world: World) -> None:
    layer, _ = started(world, "encoder")
    assert isinstance(layer, MxD)
    assert torch.equal(layer.encoder.weight, world.language_model.encoder_weights(1).weight_HI)
    assert not layer.decoder.weight.any()


def test_auto_leaves_methods_without_examples_at_the_papers_start(world: World) -> None:
    assert chosen_start(world.config()) == "examples"
    assert chosen_start(world.config(method="low-rank-mxd")) == "paper"
    with pytest.raises(UserError, match="low-rank-mxd cannot start as examples"):
        started(world, "examples", method="low-rank-mxd")
    with pytest.raises(UserError, match="no encoder to start from"):
        started(world, "encoder", method="transcoder")
