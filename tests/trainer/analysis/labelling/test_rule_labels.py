"""Labels of a whole run in the database, and the errors of labelling."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.analysis.labelling.rules import label_experts
from mxd.trainer.config import IndexConfig
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import AutomaticLabelRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.runs import World


def labels(world: World) -> list[AutomaticLabelRecord]:
    with Session(world.database) as session:
        return list(session.scalars(select(AutomaticLabelRecord).order_by(AutomaticLabelRecord.expert)))


def test_labels_are_stored_with_scores_and_replaced(world: World, run: Run) -> None:
    build_index(run, IndexConfig(text=world.text, tokens=3_000), world.language_model, world.database)
    result = label_experts(run, world.database)
    stored = labels(world)
    assert len(stored) == result.labelled > 0
    for label in stored:
        assert label.label
        assert label.labeller == "features"
        assert 0 <= label.balanced_accuracy <= 1
        assert all(share is None or 0 <= share <= 1 for share in (label.precision, label.recall))
    with Session(world.database) as session:
        active = set(session.scalars(select(ExpertRecord.expert).where(ExpertRecord.active_tokens > 0)))
    assert {label.expert for label in stored} <= active
    assert label_experts(run, world.database).labelled == result.labelled
    assert [label.label for label in labels(world)] == [label.label for label in stored]
    build_index(run, IndexConfig(text=world.text, tokens=640), world.language_model, world.database)
    assert labels(world) == []


def test_a_run_without_an_index_is_an_error(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="mxd index small"):
        label_experts(run, world.database)


def test_cancelling_changes_nothing(world: World, run: Run) -> None:
    build_index(run, IndexConfig(text=world.text, tokens=3_000), world.language_model, world.database)
    with pytest.raises(CancelledError):
        label_experts(run, world.database, callbacks=Callbacks(is_cancelled=lambda: True))
    assert labels(world) == []
