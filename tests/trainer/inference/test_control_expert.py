"""The control of a sweep is a random active expert of similar density, from the index."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.config import DoseConfig, Edit
from mxd.trainer.inference.control_expert import NUM_CANDIDATES, with_control
from mxd.trainer.storage.database.tables import ExpertRecord
from tests.helpers.databases import made_up_database

CONFIG = DoseConfig(prompt="the", edits=(Edit(expert=2, mode="add"),))


def test_the_control_has_a_similar_density(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, f"sqlite:///{tmp_path / 'mxd.sqlite'}")
    with Session(database) as session:
        density = {record.expert: record.density for record in session.scalars(select(ExpertRecord))}
        distance = {expert: abs(value - density[2]) for expert, value in density.items() if value and expert != 2}
        control = with_control(session, CONFIG, "first").control
        assert control is not None
        assert distance[control] <= sorted(distance.values())[NUM_CANDIDATES - 1]
        assert control == with_control(session, CONFIG, "first").control
        assert with_control(session, CONFIG.model_copy(update={"control": 5}), "first").control == 5
        assert with_control(session, CONFIG, "second").control is None, "it has no index"
    database.dispose()
