"""BatchTopK, gates without a top-k, and MOLT against their formulas."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mxd.trainer.config import Encoder, LayerConfig, Method
from mxd.trainer.config.layer import transform_ranks
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import Routing
from mxd.trainer.layers.registry import build_layer, load_layer
from mxd.trainer.layers.variants import THRESHOLD_UPDATE, UNSET, BatchTopK, FixedThresholds, Molt
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.layers import random_layer, random_layer_of
from tests.helpers.runs import small_world

K = 5


def batch_topk(encoder: Encoder = "glu") -> BatchTopK:
    layer = random_layer_of("batch-topk-mxd", encoder=encoder)
    assert isinstance(layer, BatchTopK)
    return layer


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_training_keeps_the_largest_scores_of_the_batch(encoder: Encoder) -> None:
    layer, x_TI = batch_topk(encoder), torch.randn(40, 12)
    routing = layer.route(x_TI)
    scores_TN = layer.gate(x_TI).relu()
    least = scores_TN.flatten().topk(40 * K).values[-1]
    chosen_TN = torch.zeros_like(scores_TN).scatter_add(1, routing.indices_TK, routing.activations_TK)
    torch.testing.assert_close(chosen_TN, torch.where(scores_TN >= least, scores_TN, 0.0))
    counts_T = (routing.activations_TK > 0).sum(1)
    assert counts_T.sum() == 40 * K
    assert counts_T.min() < K < counts_T.max() <= 4 * K


def test_the_threshold_is_a_running_mean_of_the_smallest_kept_score() -> None:
    layer = batch_topk()
    assert layer.threshold.item() == UNSET
    with torch.no_grad():
        layer.route(torch.randn(40, 12))  # as starting values do: nothing is learnt
    assert layer.threshold.item() == UNSET
    smallest = []
    for _ in range(3):
        activations_TK = layer.route(torch.randn(40, 12)).activations_TK
        smallest.append(activations_TK[activations_TK > 0].min().item())
    expected = smallest[0]
    for value in smallest[1:]:
        expected += THRESHOLD_UPDATE * (value - expected)
    assert layer.threshold.item() == pytest.approx(expected, rel=1e-5)


def test_at_inference_tokens_are_independent() -> None:
    layer, x_TI = batch_topk(), torch.randn(40, 12)
    for _ in range(4):
        layer.route(torch.randn(200, 12))
    layer.eval()
    together = layer.route(x_TI).activations_TK
    alone = torch.cat([layer.route(row_1I).activations_TK for row_1I in x_TI.split(1)])
    torch.testing.assert_close(together, alone)
    assert K * 0.7 < (together > 0).sum(1).float().mean() < K * 1.3
    assert together[together > 0].min() >= layer.threshold


def test_a_resumed_run_keeps_its_threshold(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    train_layer(world.config(method="batch-topk-mxd"), world.data, world.database, world.language_model)
    steps = iter(range(100))
    cut = world.config("cut", method="batch-topk-mxd")
    train_layer(
        cut,
        world.data,
        world.database,
        world.language_model,
        callbacks=Callbacks(is_cancelled=lambda: next(steps) == 10),
    )
    train_layer(cut, world.data, world.database, world.language_model, resume="if-any")
    whole, resumed = (load_layer(Run.load(name, world.data).folder) for name in ("small", "cut"))
    assert isinstance(whole, BatchTopK)
    assert whole.threshold.item() > 0
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name])
    world.database.dispose()


METHODS: tuple[Method, ...] = ("jumprelu-transcoder", "jumprelu-skip-transcoder")


def with_thresholds(method: Method) -> FixedThresholds:
    layer = build_layer(
        LayerConfig(
            method=method,
            input_width=12,
            hidden_width=20,
            output_width=10,
            num_experts=33,
            k=33,
            activation="gelu",
            encoder="mlp",
        )
    )
    assert isinstance(layer, FixedThresholds)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    layer.threshold_N.uniform_(0, 1)
    return layer


@pytest.mark.parametrize("method", METHODS)
def test_features_above_their_threshold_are_active(method: Method) -> None:
    layer, x_TI = with_thresholds(method), torch.randn(50, 12)
    scores_TN = layer.gate(x_TI)
    routing = layer.route(x_TI)
    active_TN = scores_TN > layer.threshold_N
    assert 0.05 < active_TN.float().mean() < 0.6
    assert torch.equal(routing.activations_TK, torch.where(active_TN, scores_TN, 0))
    layer.threshold_N.zero_()
    assert torch.equal(layer.route(x_TI).activations_TK, scores_TN.relu())


@pytest.mark.parametrize("method", METHODS)
def test_contributions_add_up(method: Method) -> None:
    layer, x_TI = with_thresholds(method), torch.randn(7, 12)
    routing, dense_TM = layer.route(x_TI), layer.dense_output(x_TI)
    singles = [Routing(c[:, None], i[:, None]) for c, i in zip(*(value.T for value in routing), strict=True)]
    summed = torch.stack([layer.contribution(dense_TM, single) for single in singles]).sum(dim=0)
    nothing = Routing(torch.zeros(7, 33), routing.indices_TK)
    assert torch.allclose(summed + layer.decode(dense_TM, nothing), layer(x_TI).output_TO, atol=1e-4)
    norms = torch.stack([layer.contribution(dense_TM, single).norm(dim=1) for single in singles], dim=1)
    assert torch.allclose(norms, layer.contribution_norms(dense_TM, routing), atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_layer_has_its_thresholds(tmp_path: Path, method: Method) -> None:
    layer, x_TI = with_thresholds(method), torch.randn(7, 12)
    layer.save(tmp_path)
    assert torch.allclose(load_layer(tmp_path)(x_TI).output_TO, layer(x_TI).output_TO)


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_a_relu_mxd_equals_an_mxd_with_k_equal_to_n(encoder: Encoder) -> None:
    relu, reference = random_layer_of("relu-mxd", encoder), random_layer(encoder, k=33)
    reference.load_state_dict(relu.state_dict())
    x_TI = torch.randn(7, 12)
    output, expected = relu(x_TI), reference(x_TI)
    torch.testing.assert_close(output.output_TO, expected.output_TO)
    assert torch.equal((output.routing.activations_TK > 0).sum(1), (expected.routing.activations_TK > 0).sum(1))
    # The columns of the reference's routing are in another order.
    torch.testing.assert_close(relu.decode(relu.dense_output(x_TI), expected.routing), expected.output_TO)
    few = Routing(*(values[:, :4] for values in expected.routing))
    torch.testing.assert_close(relu.decode(relu.dense_output(x_TI), few), reference.decode(expected.dense_TM, few))


def molt() -> Molt:
    layer = random_layer_of("molt", rank=8)
    assert isinstance(layer, Molt)
    return layer


def test_ranks_halve_as_their_number_doubles() -> None:
    ranks = transform_ranks(33, 32)
    assert ranks[:31] == (32,) + 2 * (16,) + 4 * (8,) + 8 * (4,) + 16 * (2,)
    assert ranks[31:] == (32, 16)
    assert min(transform_ranks(31, 3)) == 1


def test_matches_explicit_matrices() -> None:
    layer, x_TI = molt(), torch.randn(7, 12)
    output = layer(x_TI)
    for token, (activations_K, ids_K) in enumerate(zip(*output.routing, strict=True)):
        parts = [a * x_TI[token] @ layer.expert_matrix(int(n)) for a, n in zip(activations_K, ids_K, strict=True)]
        torch.testing.assert_close(output.output_TO[token], sum(parts) + layer.output_bias, atol=1e-4, rtol=1e-4)
        norms_K = torch.stack([part.norm() for part in parts])
        torch.testing.assert_close(
            layer.contribution_norms(output.dense_TM, output.routing)[token], norms_K, atol=1e-4, rtol=1e-4
        )
    for expert in (0, 1, 30, 32):
        assert torch.linalg.matrix_rank(layer.expert_matrix(expert)) == layer.ranks[expert]


def test_contributions_add_up_with_repeated_columns() -> None:
    layer, x_TI = molt(), torch.randn(7, 12)
    output = layer(x_TI)
    singles = [Routing(c[:, None], i[:, None]) for c, i in zip(*(value.T for value in output.routing), strict=True)]
    summed = torch.stack([layer.contribution(output.dense_TM, single) for single in singles]).sum(dim=0)
    torch.testing.assert_close(summed + layer.output_bias, output.output_TO, atol=1e-4, rtol=1e-4)
    twice = Routing(*(torch.cat([values, values], dim=1) for values in output.routing))
    torch.testing.assert_close(layer.contribution(output.dense_TM, twice), 2 * summed, atol=1e-4, rtol=1e-4)


def test_the_table_holds_each_transforms_top_direction() -> None:
    layer = molt()
    for expert in (0, 5, 32):
        left, values, _ = torch.linalg.svd(layer.expert_matrix(expert).T)
        actual_O = layer.table[expert]
        torch.testing.assert_close(actual_O.norm(), values[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close((actual_O @ left[:, 0]).abs(), values[0], atol=1e-4, rtol=1e-4)


def test_training_saving_and_unsupported_settings(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    config = world.config(method="molt", rank=4)
    assert train_layer(config, world.data, world.database, world.language_model).status == "finished"
    layer = load_layer(Run.load("small", world.data).folder)
    assert isinstance(layer, Molt)
    assert layer.ranks[:2] == (4, 2)
    with pytest.raises(UserError, match="molt cannot be initialised from examples"):
        train_layer(
            world.config("no", method="molt", init="examples"), world.data, world.database, world.language_model
        )
    world.database.dispose()
