"""Initialisation: properties of the untrained layer."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mxd.trainer.config import Init, TrainConfig
from mxd.trainer.data.activations import LiveActivations, StreamSpec
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.layers.base import SMALLEST_NORM, SparseLayer, normalized_mse
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.training import initialization
from mxd.trainer.training.initialization import hidden_pattern, initialize, resolve_init
from mxd.trainer.training.layer_trainer import LayerTrainer
from tests.helpers.language_models import tiny_language_model
from tests.helpers.runs import World


def sample_of(world: World, config: TrainConfig) -> MlpActivations:
    return next(LiveActivations(world.language_model).buffers(StreamSpec.from_configs([config]))).captured[config.layer]


def initialized(world: World, init: Init, **changes: Any) -> tuple[SparseLayer, MlpActivations]:
    config = world.config(init=init, **changes)
    sample = sample_of(world, config)
    return LayerTrainer.create(config, world.language_model, 24, sample=sample).layer, sample


def start_error(layer: SparseLayer, sample: MlpActivations) -> float:
    """Normalised MSE of the layer, relative to that of the mean output."""
    mean_TO = sample.output_TO.mean(dim=0).expand_as(sample.output_TO)
    with torch.no_grad():
        output_TO = layer(sample.inputs_for(layer)).output_TO
    return float(normalized_mse(output_TO, sample.output_TO) / normalized_mse(mean_TO, sample.output_TO))


@pytest.mark.parametrize("method", ["mxd", "transcoder", "skip-transcoder", "autoencoder", "hidden-mxd"])
def test_initialisation_from_examples_beats_the_mean_at_the_first_step(world: World, method: str) -> None:
    layer, sample = initialized(world, "examples", method=method)
    assert start_error(layer, sample) < 0.9
    used = layer.route(sample.inputs_for(layer)).indices_TK.unique()
    assert len(used) == layer.config.num_experts


@pytest.mark.parametrize("method", ["mxd", "transcoder"])
def test_massive_activations_do_not_spoil_the_start(world: World, method: str) -> None:
    """The first tokens of sequences have a massive output in many language models. All others must start well."""
    config = world.config(init="examples", method=method)
    sample = sample_of(world, config)
    massive_TO = sample.output_TO.clone()
    massive_TO[:: config.text.context_length] += 300 * sample.output_TO.norm(dim=1).median() * torch.ones(1)
    sample = MlpActivations(sample.input_TI, massive_TO)
    layer = LayerTrainer.create(config, world.language_model, 24, sample=sample).layer
    with torch.no_grad():
        error = normalized_mse(layer(sample.inputs_for(layer)).output_TO, massive_TO)
    assert error < 1.05  # predicting zero scores 1


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_experts_from_examples_write_one_direction(world: World, family: str) -> None:
    world = World(world.data, world.database, tiny_language_model(family), world.text)
    layer, sample = initialized(world, "examples")
    assert isinstance(layer, MxD)
    dense_TO = layer.dense_output(sample.input_TI)
    torch.testing.assert_close(dense_TO, torch.ones_like(dense_TO))


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
def test_hidden_units_times_their_pattern_are_those_of_the_mlp(world: World, family: str) -> None:
    world = World(world.data, world.database, tiny_language_model(family), world.text)
    config = world.config(init="examples", method="hidden-mxd")
    sample = sample_of(world, config)
    layer = LayerTrainer.create(config, world.language_model, 24, sample=sample).layer
    assert isinstance(layer, MxD)
    with torch.no_grad():
        hidden_TH = layer.encode(sample.input_TI) * hidden_pattern(world.language_model, 1)(sample.input_TI)
        rest_TO = sample.output_TO - layer.decoder(hidden_TH)  # the bias of the MLP's down projection
    torch.testing.assert_close(rest_TO, rest_TO[:1].expand_as(rest_TO), atol=1e-4, rtol=0)


@pytest.mark.parametrize("experts", [40, 3000])
def test_scores_of_examples_are_zero_at_the_mean(world: World, experts: int) -> None:
    layer, sample = initialized(world, "examples", num_experts=experts)
    squares_T1 = sample.output_TO.square().sum(dim=1, keepdim=True)
    weight_T1 = 1 / squares_T1.clamp_min(SMALLEST_NORM)  # as in the training loss
    mean_I = (weight_T1 * sample.inputs_for(layer)).sum(dim=0) / weight_T1.sum()
    assert layer.gate(mean_I).abs().max() < 1e-5
    assert layer.gate(sample.inputs_for(layer)).abs().max() > 1e-2


class LargestTensor(TorchDispatchMode):
    """Size of the largest tensor that an operation made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not func.is_view:
            self.size = max(self.size, result.numel())
        return result


@pytest.mark.parametrize("method", ["mxd", "transcoder", "hidden-mxd"])
def test_the_mixing_is_the_largest_intermediate_value(
    world: World, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sharded experts, every other one of the size of hidden units or of the text would exceed training."""
    monkeypatch.setattr(initialization, "AT_A_TIME", 16)
    monkeypatch.setattr(initialization, "SCALE_TOKENS", 64)
    config = world.config(init="examples", method=method, num_experts=12)
    sample = sample_of(world, config)
    layer = LayerTrainer.create(config.model_copy(update={"init": "random"}), world.language_model, 24).layer
    with LargestTensor() as largest:
        initialize(layer, config, world.language_model, sample)
    assert largest.size <= 64 * layer.table.shape[1] < len(sample.input_TI) * layer.config.input_width


def test_auto_is_random_for_methods_without_examples(world: World) -> None:
    assert resolve_init(world.config()) == "examples"
    assert resolve_init(world.config(method="low-rank-mxd")) == "random"
    with pytest.raises(UserError, match="low-rank-mxd cannot be initialised from examples"):
        initialized(world, "examples", method="low-rank-mxd")
