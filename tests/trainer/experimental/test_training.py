"""muMoE and MxDs that mix hidden units; diversity penalty, frozen parts and Gaussian inputs."""

from pathlib import Path
from typing import Any

import pytest
import torch

from mxd.trainer.config import Encoder, Method, RegularizationConfig, TrainConfig
from mxd.trainer.config import layer as registered
from mxd.trainer.config.layer import MethodTraits, Mixing, methods
from mxd.trainer.config.training import FinetuneConfig
from mxd.trainer.data.activations import LiveActivations, StreamSpec
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.metrics import constant_mixing_fit
from mxd.trainer.experimental import ExperimentalConfig, ExperimentalTrainConfig
from mxd.trainer.experimental.layers import HiddenMxD, TensorRingMxD
from mxd.trainer.experimental.training import (
    ExperimentalLayerTrainer,
    GaussianInputs,
    check_experimental,
    constant_share,
    original_mlp,
    output_similarity,
    train_experimental,
)
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.layers import registry
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.layers.variants import Transcoder
from mxd.trainer.storage.run import Run
from mxd.trainer.training.finetune import new_run_configs
from mxd.trainer.training.initialization import loss_weights
from mxd.trainer.training.train import train_layers
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from tests.helpers.language_models import tiny_language_model
from tests.helpers.layers import layer_config, random_layer, routing_to
from tests.helpers.runs import World, stop_after


def test_the_penalty_is_the_mean_squared_cosine_of_different_experts() -> None:
    table_NO = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [9.0, 9.0]])
    assert output_similarity(routing_to([[0, 1]]), table_NO) == pytest.approx(1)
    assert output_similarity(routing_to([[0, 2]]), table_NO) == pytest.approx(0)
    assert output_similarity(routing_to([[0, 1], [2, 2]]), table_NO) == pytest.approx(1 / 3)


def experimental_config(world: World, name: str = "small", **changes: Any) -> ExperimentalTrainConfig:
    settings = {name: changes.pop(name) for name in ExperimentalConfig.model_fields if name in changes}
    config = world.config(name, **changes).model_dump()
    return ExperimentalTrainConfig.model_validate({**config, "experimental": settings})


def train(world: World, config: ExperimentalTrainConfig, callbacks: Callbacks = NO_CALLBACKS) -> Run:
    train_experimental([config], world.data, world.database, world.language_model, resume="if-any", callbacks=callbacks)
    return Run.load(config.name, world.data)


def test_a_method_of_another_module_is_trained_and_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="Unknown method\\. Did you mean 'mxd'"):
        TrainConfig.from_keywords({}, {**world.config().model_dump(), "method": "mxdd"})
    monkeypatch.setattr(registered, "_TRAITS", dict(registered._TRAITS))
    monkeypatch.setattr(registry, "_CLASSES", dict(registry._CLASSES))
    registered.register_method("foreign", MethodTraits("a method of another package", has_top_k=False))
    registry.register_layers("foreign", Transcoder)
    assert "foreign" in methods("core")
    train_layers([world.config(method="foreign", init="random")], world.data, world.database, world.language_model)
    assert isinstance(Run.load("small", world.data).layer, Transcoder)
    assert Run.load("small", world.data).config.method == "foreign"


def hidden_trainer(world: World, weight: float) -> tuple[ExperimentalLayerTrainer, MlpActivations]:
    config = experimental_config(world, method="hidden-mxd", constant_weight=weight)
    sample = next(LiveActivations(world.language_model).buffers(StreamSpec.from_configs([config]))).captured[
        config.layer
    ]
    return ExperimentalLayerTrainer.create(config, world.language_model, 40, sample=sample), sample


def test_the_share_of_the_best_constant_is_that_of_the_evaluation(world: World) -> None:
    trainer, sample = hidden_trainer(world, 1.0)
    hidden_TH = trainer.layer.dense_output(sample.input_TI).detach()
    fit = constant_mixing_fit(trainer.layer)
    assert fit is not None
    fit.add(hidden_TH, sample.output_TO)
    fitted_TO = fit.best().output(trainer.layer, hidden_TH).detach()
    weight_T1 = loss_weights(sample.output_TO)
    centred_TO = sample.output_TO - (weight_T1 * sample.output_TO).sum(dim=0)
    error, whole = ((weight_T1 * of.square()).sum() for of in (sample.output_TO - fitted_TO, centred_TO))
    share = constant_share(hidden_TH, trainer.layer.get_parameter("decoder.weight").detach(), sample.output_TO)
    assert 0.05 < share < 1
    assert float(share) == pytest.approx(float(1 - error / whole), abs=1e-3)


def test_the_penalty_lowers_the_share_of_the_best_constant(world: World) -> None:
    shares = []
    for weight in (0.0, 3.0):
        trainer, sample = hidden_trainer(world, weight)
        for _step in range(40):
            trainer.train_step(sample)
        with torch.no_grad():
            hidden_TH = trainer.layer.dense_output(sample.input_TI)
            decoder_OH = trainer.layer.get_parameter("decoder.weight")
            shares.append(float(constant_share(hidden_TH, decoder_OH, sample.output_TO)))
    assert shares[1] < shares[0] / 2


FROZEN = {"gate": {"gate.weight", "gate.bias"}, "table": {"scaling_NO"}}


@pytest.mark.parametrize("freeze", ["gate", "table", "both"])
@pytest.mark.parametrize("init", ["examples", "random"])
def test_frozen_parameters_keep_every_bit_and_the_others_are_trained(world: World, freeze: str, init: str) -> None:
    config = experimental_config(world, freeze=freeze, init=init)
    sample = next(LiveActivations(world.language_model).buffers(StreamSpec.from_configs([config]))).captured[1]
    first = ExperimentalLayerTrainer.create(config, world.language_model, 24, sample=sample).layer.state_dict()
    last = train(world, config).layer.state_dict()
    frozen = FROZEN["gate"] | FROZEN["table"] if freeze == "both" else FROZEN[freeze]
    assert {name for name, value in first.items() if torch.equal(value, last[name])} == frozen


@pytest.mark.parametrize(
    "changes",
    [
        {"freeze": "gate"},
        {"inputs": "gaussian"},
        {"freeze": "both", "method": "transcoder"},
        {"diversity_weight": 0.01, "regularization": RegularizationConfig(k_spread=0.5, load_balance_weight=0.01)},
    ],
)
def test_a_resumed_run_is_bit_identical(world: World, changes: dict[str, Any]) -> None:
    train(world, experimental_config(world, **changes))
    train(world, experimental_config(world, "again", **changes), stop_after(10))
    resumed = train(world, experimental_config(world, "again", **changes))
    assert isinstance(resumed.config, ExperimentalTrainConfig)
    assert resumed.config.experimental.diversity_weight == changes.get("diversity_weight", 0.0)
    world.check_same_weights("small", "again")


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_gaussian_inputs_have_the_moments_of_the_text_and_the_outputs_of_the_mlp(family: str) -> None:
    language_model = tiny_language_model(family)
    ids_BT = torch.randint(50, (64, 16), generator=torch.Generator().manual_seed(0))
    text = language_model.capture(1, ids_BT)
    torch.testing.assert_close(original_mlp(language_model, 1)(text.input_TI), text.output_TO, atol=1e-5, rtol=1e-4)
    inputs = GaussianInputs.like(text.input_TI, language_model, 1)
    drawn = inputs.sample(200_000, seed=0, step=0)
    assert (drawn.input_TI.mean(dim=0) - text.input_TI.mean(dim=0)).norm() < 0.02 * text.input_TI.norm(dim=1).mean()
    expected_II, actual_II = torch.cov(text.input_TI.T), torch.cov(drawn.input_TI.T)
    assert (actual_II - expected_II).norm() < 0.02 * expected_II.norm()
    torch.testing.assert_close(inputs.mlp(drawn.input_TI[:8]), drawn.output_TO[:8], atol=1e-5, rtol=1e-4)
    assert torch.equal(inputs.sample(4, seed=0, step=3).input_TI, inputs.sample(4, seed=0, step=3).input_TI)
    assert not torch.equal(inputs.sample(4, seed=0, step=3).input_TI, inputs.sample(4, seed=0, step=4).input_TI)


def test_unsupported_combinations(world: World) -> None:
    refused: dict[str, dict[str, Any]] = {
        "A molt has no expert rows": {"method": "molt", "diversity_weight": 0.1},
        "does not mix hidden units": {"constant_weight": 1.0},
        "Use --init=examples": {"inputs": "gaussian", "init": "random"},
    }
    for sentence, changes in refused.items():
        with pytest.raises(UserError, match=sentence):
            check_experimental(experimental_config(world, **changes), is_single_process=True)
    molt = experimental_config(world, method="molt", freeze="table")
    with pytest.raises(UserError, match="Use --freeze=gate"):
        ExperimentalLayerTrainer.create(molt, world.language_model, total_steps=4)
    with pytest.raises(UserError, match="Run without torchrun"):
        check_experimental(experimental_config(world, diversity_weight=0.1), is_single_process=False)


def test_fine_tuning_keeps_the_settings_of_the_core(world: World) -> None:
    run = train(world, experimental_config(world, diversity_weight=0.01))
    (tuned,) = new_run_configs([run], FinetuneConfig(text=world.text, tokens=512))
    assert type(tuned) is TrainConfig
    assert (tuned.parents, tuned.method, tuned.k) == (("small",), "mxd", world.config().k)


# ---------------------------------------------------------------- methods

R = 3


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_tensor_ring_output_is_the_trace_of_the_cores(encoder: Encoder) -> None:
    layer, x_TI = random_layer("tensor-ring-mxd", encoder=encoder, rank=R), torch.randn(7, 12)
    assert isinstance(layer, TensorRingMxD)
    output = layer(x_TI)
    activations_TN = torch.zeros(7, 33).scatter_add(1, output.routing.indices_TK, output.routing.activations_TK)
    first_NPQ = layer.scaling_NO.view(33, R, R)
    second_QSH = layer.decoder.weight.view(R, R, 20)
    third_OPS = layer.up.weight.view(10, R, R)
    expected_TO = torch.einsum(
        "tn,npq,qsh,th,ops->to", activations_TN, first_NPQ, second_QSH, layer.encode(x_TI), third_OPS
    )
    torch.testing.assert_close(output.output_TO, expected_TO + layer.output_bias, atol=1e-4, rtol=1e-4)


def test_a_centred_layer_at_its_centre_outputs_only_the_bias() -> None:
    layer, x_TI = random_layer("hidden-mxd", mixing="centred"), torch.randn(7, 12)
    assert isinstance(layer, HiddenMxD)
    centre_TH = layer.mixing_centre_M.normal_().expand(7, -1)
    torch.testing.assert_close(layer.decode_mixed(layer.dense_output(x_TI), centre_TH), layer.output_bias.expand(7, -1))


def test_a_rank_is_required() -> None:
    with pytest.raises(UserError, match="needs a rank"):
        build_layer(layer_config("low-rank-mxd", rank=None))


@pytest.mark.parametrize(
    ("method", "rank"), [("low-rank-mxd", 4), ("tensor-ring-mxd", 2), ("autoencoder", None), ("molt", 8)]
)
def test_training_and_saving(world: World, method: Method, rank: int | None) -> None:
    layer = world.train(method=method, num_experts=None).layer
    assert (layer.method, layer.config.k, layer.config.rank) == (method, 4, rank)
    assert not isinstance(layer, TensorRingMxD) or layer.side == rank


@pytest.mark.parametrize("mixing", ["paper", "centred"])
def test_training_and_saving_of_hidden_mixing(world: World, tmp_path: Path, mixing: Mixing) -> None:
    run = world.train(method="hidden-mxd", num_experts=None, mixing=mixing)
    layer = run.layer
    assert isinstance(layer, HiddenMxD)
    assert layer.config.mixing == mixing
    assert bool((layer.mixing_bias_H if mixing == "paper" else layer.mixing_centre_M).abs().sum() > 0)
    assert layer.scaling_NO.shape == (layer.config.num_experts, layer.config.hidden_width)
    card = (run.save_pretrained(tmp_path / "shared") / "README.md").read_text()
    assert ("a C plus a learned constant" in card) == (mixing == "paper")
    assert "| activation |" not in card
