"""What an expert does, against whole forward passes in which it alone is changed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tests.layers import random_layer
from tests.runs import World
from trainer.config import IndexConfig, InfluenceConfig
from trainer.errors import UserError
from trainer.indexing import build_index
from trainer.influence import build_influence
from trainer.influence.picks import find_indexed, others_of_same_usage, read_known, read_picks, read_sequences
from trainer.run import Run
from trainer.store import ExpertRecord, InfluenceRecord
from trainer.train import train

SETTINGS = InfluenceConfig(per_interval=2)


@pytest.fixture
def run(world: World) -> Run:
    """An indexed run whose layer is random, so that every expert matters."""
    train(world.config(), world.data, world.store, world.language_model)
    run = Run.load("small", world.data)
    run.__dict__["layer"] = random_layer(widths=(16, 24, 16), num_experts=40, k=4)
    index = IndexConfig.model_validate({"text": world.text, "tokens": 640, "top": 3, "per_interval": 2})
    build_index(run, index, world.language_model, world.store)
    return run


def influences(world: World) -> list[InfluenceRecord]:
    with Session(world.store) as session:
        return list(session.scalars(select(InfluenceRecord).order_by(InfluenceRecord.expert)))


def test_switching_off_is_what_a_whole_forward_pass_says(world: World, run: Run) -> None:
    build_influence(run, SETTINGS, world.language_model, world.store)
    records = influences(world)
    with Session(world.store) as session:
        record = find_indexed(session, run.name)
        picks, sequences = read_picks(session, record, 2), read_sequences(session, record)
        known = read_known(session, record)
    for influence in records[:6]:
        own = picks.of(np.flatnonzero(picks.expert == influence.expert))
        losses, ups, weights = [], [], []
        for sequence, position, weight in zip(own.sequence, own.position, own.weight, strict=True):
            ids = sequences[sequence]
            base = changed_log_p(world, run, ids, position, influence.expert, None)
            off = changed_log_p(world, run, ids, position, influence.expert, 0.0)
            up = changed_log_p(world, run, ids, position, influence.expert, float(known.p99[influence.expert]))
            ups.append((weight, float((base.exp() * (base - up)).sum())))
            if position + 1 < len(ids):
                losses.append(float(base[ids[position + 1]] - off[ids[position + 1]]))
                weights.append(weight)
        assert influence.added_loss == pytest.approx(np.average(losses, weights=weights), rel=1e-3, abs=1e-5)
        total = sum(weight for weight, _ in ups)
        assert influence.kl_up == pytest.approx(sum(w * kl for w, kl in ups) / total, rel=1e-3, abs=1e-5)


def changed_log_p(
    world: World, run: Run, ids: list[int], position: int, expert: int, added: float | None
) -> torch.Tensor:
    """Next-token log p at a position; ``added`` 0 takes the expert's contribution out, more adds that coefficient."""
    layer = run.layer

    def answer(x_BTI: torch.Tensor, mlp: object) -> torch.Tensor:
        output_BTO: torch.Tensor = mlp().clone()  # type: ignore[operator]
        if added is None:
            return output_BTO
        x_1I = x_BTI[0, position : position + 1]
        routing = layer.route(x_1I)
        live = float((routing.coefficients_TK * (routing.indices_TK == expert)).sum())
        matrix_HO = layer.expert_matrix(expert)  # type: ignore[operator]
        hidden_1H = layer.encode(x_1I)  # type: ignore[operator]
        output_BTO[0, position] += (added if added else -live) * (hidden_1H @ matrix_HO)[0]
        return output_BTO

    with torch.no_grad(), world.language_model.stand_in({run.config.layer: answer}):
        return world.language_model.logits(torch.tensor([ids]))[0, position].log_softmax(-1)


def test_contexts_stand_for_every_active_token(world: World, run: Run) -> None:
    with Session(world.store) as session:
        record = find_indexed(session, run.name)
        picks = read_picks(session, record, 2)
        active = {row.expert: row.active_tokens for row in session.scalars(select(ExpertRecord))}
    for expert in np.unique(picks.expert).tolist():
        assert picks.weight[picks.expert == expert].sum() == pytest.approx(active[expert])


def test_the_table_of_experts_holds_what_it_is_sorted_by(world: World, run: Run) -> None:
    result = build_influence(run, SETTINGS, world.language_model, world.store)
    with Session(world.store) as session:
        rows = session.execute(
            select(ExpertRecord, InfluenceRecord).join(
                InfluenceRecord,
                (ExpertRecord.run_id == InfluenceRecord.run_id) & (ExpertRecord.expert == InfluenceRecord.expert),
            )
        ).all()
        unmeasured = session.scalar(
            select(func.count()).select_from(ExpertRecord).where(ExpertRecord.output_share == 0)
        )
    assert result.experts == len(rows) > 10
    assert unmeasured == 40 - len(rows)
    for expert, influence in rows:
        assert (expert.added_loss, expert.kl_up) == (influence.added_loss, influence.kl_up)
        assert 0 <= expert.input_dependence <= 1 and 0 < expert.output_share <= 1
        assert influence.promoted[0][1] > 0 > influence.suppressed[0][1]
        assert influence.other != expert.expert


def test_a_feature_always_writes_the_same_direction(world: World) -> None:
    train(world.config(method="transcoder"), world.data, world.store, world.language_model)
    run = Run.load("small", world.data)
    index = IndexConfig.model_validate({"text": world.text, "tokens": 640, "top": 3, "per_interval": 2})
    build_index(run, index, world.language_model, world.store)
    build_influence(run, SETTINGS, world.language_model, world.store)
    assert all(influence.input_dependence < 1e-4 for influence in influences(world))


def test_measuring_again_gives_the_same_and_a_new_index_forgets_it(world: World, run: Run) -> None:
    first = build_influence(run, SETTINGS, world.language_model, world.store)
    assert build_influence(run, SETTINGS, world.language_model, world.store) == first
    index = IndexConfig.model_validate({"text": world.text, "tokens": 320, "top": 3, "per_interval": 2})
    build_index(run, index, world.language_model, world.store)
    assert influences(world) == []


def test_others_are_of_the_same_usage(world: World, run: Run) -> None:
    with Session(world.store) as session:
        known = read_known(session, find_indexed(session, run.name))
    others = others_of_same_usage(known, seed=3)
    order = {expert: place for place, expert in enumerate(known.active.tolist())}
    assert all(others[expert] != expert and abs(order[others[expert]] - place) <= 8 for expert, place in order.items())


def test_what_is_missing_is_said(world: World) -> None:
    train(world.config(), world.data, world.store, world.language_model)
    run = Run.load("small", world.data)
    with pytest.raises(UserError, match="mxd index small"):
        build_influence(run, SETTINGS, world.language_model, world.store)
    index = IndexConfig.model_validate({"text": world.text, "tokens": 320, "per_interval": 0})
    build_index(run, index, world.language_model, world.store)
    with pytest.raises(UserError, match="per-interval 1"):
        build_influence(run, SETTINGS, world.language_model, world.store)
    index = IndexConfig.model_validate({"text": world.text, "tokens": 320, "per_interval": 1})
    build_index(run, index, world.language_model, world.store)
    with pytest.raises(UserError, match="stopped"):
        build_influence(run, SETTINGS, world.language_model, world.store, should_stop=lambda: True)
    assert influences(world) == []
