"""Labelling a whole run: what lands in the store, and what happens where it cannot."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.runs import World
from trainer.config import IndexConfig
from trainer.errors import UserError
from trainer.indexing import build_index
from trainer.labelling import label_experts
from trainer.run import Run
from trainer.store import ExpertRecord
from trainer.tables import AutomaticLabelRecord
from trainer.train import train


@pytest.fixture
def run(world: World) -> Run:
    train(world.config(), world.data, world.store, world.language_model)
    return Run.load("small", world.data)


def labels(world: World) -> list[AutomaticLabelRecord]:
    with Session(world.store) as session:
        return list(session.scalars(select(AutomaticLabelRecord).order_by(AutomaticLabelRecord.expert)))


def test_labels_are_stored_with_scores_and_replaced(world: World, run: Run) -> None:
    build_index(run, IndexConfig(text=world.text, tokens=3_000), world.language_model, world.store)
    result = label_experts(run, world.store)
    stored = labels(world)
    assert len(stored) == result.labelled > 0
    for label in stored:
        assert label.label
        assert label.maker == "features"
        assert 0 <= label.balanced_accuracy <= 1
        assert all(share is None or 0 <= share <= 1 for share in (label.precision, label.recall))
    with Session(world.store) as session:
        active = set(session.scalars(select(ExpertRecord.expert).where(ExpertRecord.active_tokens > 0)))
    assert {label.expert for label in stored} <= active
    assert label_experts(run, world.store).labelled == result.labelled
    assert [label.label for label in labels(world)] == [label.label for label in stored]
    build_index(run, IndexConfig(text=world.text, tokens=640), world.language_model, world.store)
    assert labels(world) == []


def test_without_an_index_it_says_what_to_do(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="mxd index small"):
        label_experts(run, world.store)


def test_stopped_it_changes_nothing(world: World, run: Run) -> None:
    build_index(run, IndexConfig(text=world.text, tokens=3_000), world.language_model, world.store)
    with pytest.raises(UserError, match="stopped"):
        label_experts(run, world.store, should_stop=lambda: True)
    assert labels(world) == []
