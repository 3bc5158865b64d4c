"""Units and medians from the index, and the control of a sweep: a random active expert of similar density."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.config import Edit, SteeringConfig, StrengthSweepConfig
from mxd.trainer.errors import UsageWarning
from mxd.trainer.inference.units import NUM_CANDIDATES, edit_units, median_in_units, with_control
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from tests.helpers.databases import made_up_database

CONFIG = StrengthSweepConfig(prompt="the", edits=(Edit(expert=2, mode="add"),))


def record(values: np.ndarray, high: float, p99: float = 1.0) -> ExpertRecord:
    histogram = np.histogram(values, bins=64, range=(0, high))[0].tolist()
    return ExpertRecord(histogram=histogram, histogram_high=high, p99=p99)


@given(st.lists(st.floats(0.001, 7.999), min_size=1, max_size=300))
def test_the_median_is_at_most_one_bin_off(values: list[float]) -> None:
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    assert low - 8 / 64 <= median_in_units(record(np.array(values), 8.0)) <= high + 8 / 64


def test_medians_are_in_units() -> None:
    values = np.linspace(0.01, 3.99, 1000)
    assert median_in_units(record(values, 4.0, p99=3.9)) == pytest.approx(2 / 3.9, rel=0.02)


def test_a_dead_expert_has_median_zero() -> None:
    assert median_in_units(ExpertRecord(histogram=[0] * 64, histogram_high=0.0, p99=0.0)) == 0


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


def test_a_unit_is_that_of_the_index_then_that_of_the_folder_then_one(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, f"sqlite:///{tmp_path / 'mxd.sqlite'}")
    with Session(database) as session:
        p99 = {record.expert: record.p99 for record in session.scalars(select(ExpertRecord)) if record.p99}
        indexed = min(p99)
        edits = (f"{indexed}:add:1", "second/1:set:2@when:first/2000>0", "second/2:ablate")
        config = SteeringConfig.model_validate({"prompt": "the", "edits": edits})
        folders = {"first": {indexed: 99.0, 2000: 7.0}, "second": {1: 3.0}}
        units = edit_units(config, "first", folders.__getitem__, session)
        assert units == {"first": {indexed: p99[indexed], 2000: 7.0}, "second": {1: 3.0, 2: 1.0}}
        assert edit_units(config, "first", folders.__getitem__)["first"][indexed] == 99.0, "no database"
        with pytest.warns(UsageWarning, match=f"expert {indexed} is unknown"):
            assert edit_units(config, "first", lambda _: {1: 3.0})["first"] == {indexed: 1.0, 2000: 1.0}
        tested = SteeringConfig.model_validate({"prompt": "the", "edits": ("1:ablate@when:second/9>0.5",)})
        with pytest.warns(UsageWarning, match="expert 9 is unknown"):
            assert edit_units(tested, "first", lambda _: {})["second"] == {9: 1.0}
    database.dispose()
