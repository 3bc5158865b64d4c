"""Training with experimental settings and methods."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from mxd.trainer.config import RegularizationConfig
from mxd.trainer.config.methods import ExperimentalMethod
from mxd.trainer.errors import UserError
from mxd.trainer.experimental import EXPERIMENTAL_METHODS, ExperimentalConfig, ExperimentalTrainConfig
from mxd.trainer.experimental.train import ExperimentalLayerTrainer, check_experimental, train_experimental
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from tests.helpers.forking.forked import Forked
from tests.helpers.runs import World


def experimental_config(world: World, name: str = "small", **changes: Any) -> ExperimentalTrainConfig:
    settings = {name: changes.pop(name) for name in ExperimentalConfig.model_fields if name in changes}
    config = world.config(name, **changes).model_dump()
    return ExperimentalTrainConfig.model_validate({**config, "experimental": settings})


def train(world: World, config: ExperimentalTrainConfig, callbacks: Callbacks = NO_CALLBACKS) -> None:
    train_experimental([config], world.data, world.database, world.language_model, resume="if-any", callbacks=callbacks)


def test_the_registry_has_every_experimental_method() -> None:
    assert set(EXPERIMENTAL_METHODS) == set(get_args(ExperimentalMethod))


IMPORT_THE_CORE = """
import sys, mxd.api.training, mxd.backend.api.app
sys.exit(any(name.startswith("mxd.trainer.experimental") for name in sys.modules))
"""


def test_the_core_does_not_load_the_experimental_package(tmp_path: Path) -> None:
    with Forked(partial(exec, IMPORT_THE_CORE, {}), ["core"], tmp_path, os.environ) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


def test_a_resumed_run_is_bit_identical_to_an_uninterrupted_one(world: World) -> None:
    changes: dict[str, Any] = {
        "regularization": RegularizationConfig(k_spread=0.5, load_balance_weight=0.01),
        "diversity_weight": 0.01,
    }
    train(world, experimental_config(world, **changes))
    expected = Run.load("small", world.data).layer.state_dict()
    cancelled = iter([False] * 9 + [True])
    train(world, experimental_config(world, "again", **changes), Callbacks(is_cancelled=lambda: next(cancelled)))
    train(world, experimental_config(world, "again", **changes))
    resumed = Run.load("again", world.data)
    assert isinstance(resumed.config, ExperimentalTrainConfig)
    assert resumed.config.experimental.diversity_weight == 0.01
    assert all(torch.equal(value, expected[name]) for name, value in resumed.layer.state_dict().items())


def test_the_diversity_penalty_reaches_the_table(world: World) -> None:
    config = experimental_config(world, diversity_weight=1.0, init="random")
    trainer = ExperimentalLayerTrainer.create(config, world.language_model, total_steps=4)
    batch = MlpActivations(torch.randn(64, 16), torch.randn(64, 16))
    loss = trainer.auxiliary_loss(trainer.layer.route(batch.input_TI))
    assert loss is not None
    loss.backward()
    assert trainer.layer.table.grad is not None and trainer.layer.table.grad.any()


def test_unsupported_combinations(world: World) -> None:
    with pytest.raises(UserError, match="A molt has no expert rows"):
        check_experimental(experimental_config(world, method="molt", diversity_weight=0.1), is_single_process=True)
    with pytest.raises(UserError, match="Run without torchrun"):
        check_experimental(experimental_config(world, diversity_weight=0.1), is_single_process=False)
