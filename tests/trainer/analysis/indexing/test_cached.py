"""An index of cached activations equals brute force over them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.analysis.indexing import collect as collect_module
from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.config import IndexConfig
from mxd.trainer.data.activation_cache import ActivationCache, filled_cache
from mxd.trainer.data.activations import StreamSpec, capture_layers
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import IndexRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.helpers.runs import World


@pytest.fixture
def cache(world: World) -> ActivationCache:
    return filled_cache(world.data / "cache", StreamSpec.from_configs([world.config()]), world.language_model)


@pytest.mark.parametrize(("tokens", "per_batch"), [(1280, 48), (640, 1024)])
def test_the_index_of_a_cache_equals_brute_force(
    world: World, cache: ActivationCache, monkeypatch: pytest.MonkeyPatch, tokens: int, per_batch: int
) -> None:
    monkeypatch.setattr(collect_module, "TOKENS_PER_BATCH", per_batch)
    train_layer(world.config(), world.data, world.database, world.language_model)
    run = Run.load("small", world.data)
    ids_SL = np.concatenate(list(cache.token_ids(world.text, world.language_model.tokenizer)))
    inputs_TI = torch.cat([cache.activations(1, index).input_TI for index in range(3)])
    captured = capture_layers(world.language_model, [1], ids_SL)[1].input_TI
    assert torch.equal(inputs_TI, captured.bfloat16().float()), "token ids belong to the activations"

    result = build_index(
        run, IndexConfig(text=world.text, tokens=tokens), world.language_model, world.database, cache=cache
    )
    with torch.no_grad():
        activations_TK, indices_TK = run.layer.route(inputs_TI[:tokens])
    active_N = torch.bincount(indices_TK[activations_TK > 0], minlength=40)
    assert result.tokens == tokens
    with Session(world.database) as session:
        records = session.scalars(select(ExpertRecord).order_by(ExpertRecord.expert)).all()
        assert session.scalars(select(IndexRecord)).one().tokens == tokens
    assert [record.active_tokens for record in records] == active_N.tolist()


def test_the_text_of_a_cache_may_move(world: World, cache: ActivationCache) -> None:
    train_layer(world.config(), world.data, world.database, world.language_model, cache=cache)
    old = Path(world.text.dataset)
    (old.parent / "moved").mkdir()
    moved = world.text.model_copy(update={"dataset": str(old.rename(old.parent / "moved" / old.name))})
    config = IndexConfig(text=moved, tokens=640)
    run = Run.load("small", world.data)
    assert build_index(run, config, world.language_model, world.database, cache=cache).tokens == 640


def test_another_text_or_too_many_tokens_are_errors(world: World, cache: ActivationCache) -> None:
    with pytest.raises(UserError, match="holds 1,536 tokens"):
        cache.check_text(world.text, 10_000)
    with pytest.raises(UserError, match="another dataset settings"):
        cache.check_text(world.text.model_copy(update={"context_length": 32}), 100)
