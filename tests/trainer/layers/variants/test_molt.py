"""MOLT against its explicit matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mxd.trainer.config.methods import transform_ranks
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import Routing
from mxd.trainer.layers.registry import load_layer
from mxd.trainer.layers.variants.molt import Molt
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.helpers.layers import random_layer_of
from tests.helpers.runs import small_world


def layer_of() -> Molt:
    layer = random_layer_of("molt", rank=8)
    assert isinstance(layer, Molt)
    return layer


def test_ranks_halve_as_their_number_doubles() -> None:
    ranks = transform_ranks(33, 32)
    assert ranks[:31] == (32,) + 2 * (16,) + 4 * (8,) + 8 * (4,) + 16 * (2,)
    assert ranks[31:] == (32, 16)
    assert min(transform_ranks(31, 3)) == 1


def test_matches_explicit_matrices() -> None:
    layer, x_TI = layer_of(), torch.randn(7, 12)
    output = layer(x_TI)
    for token, (coefficients_K, ids_K) in enumerate(zip(*output.routing, strict=True)):
        parts = [a * x_TI[token] @ layer.expert_matrix(int(n)) for a, n in zip(coefficients_K, ids_K, strict=True)]
        torch.testing.assert_close(output.output_TO[token], sum(parts) + layer.output_bias, atol=1e-4, rtol=1e-4)
        norms_K = torch.stack([part.norm() for part in parts])
        torch.testing.assert_close(
            layer.contribution_norms(output.dense_TM, output.routing)[token], norms_K, atol=1e-4, rtol=1e-4
        )
    for expert in (0, 1, 30, 32):
        assert torch.linalg.matrix_rank(layer.expert_matrix(expert)) == layer.ranks[expert]


def test_contributions_add_up_with_repeated_columns() -> None:
    layer, x_TI = layer_of(), torch.randn(7, 12)
    output = layer(x_TI)
    singles = [Routing(c[:, None], i[:, None]) for c, i in zip(*(value.T for value in output.routing), strict=True)]
    summed = torch.stack([layer.contribution(output.dense_TM, single) for single in singles]).sum(dim=0)
    torch.testing.assert_close(summed + layer.output_bias, output.output_TO, atol=1e-4, rtol=1e-4)
    twice = Routing(*(torch.cat([values, values], dim=1) for values in output.routing))
    torch.testing.assert_close(layer.contribution(output.dense_TM, twice), 2 * summed, atol=1e-4, rtol=1e-4)


def test_the_table_holds_each_transforms_top_direction() -> None:
    layer = layer_of()
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
