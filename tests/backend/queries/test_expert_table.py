"""Pages of any selection in any order, against sorting the whole."""

from __future__ import annotations

import numpy as np

from mxd.backend.queries.expert_table import Columns


def test_steerable_experts_have_the_highest_steerability() -> None:
    steerability = np.linspace(0, 1, 41)
    steerability[0] = np.nan
    columns = Columns(np.arange(100, 141), {"steerability": steerability})
    assert columns.most_steerable.tolist() == [139, 140]
    assert len(Columns(np.arange(3), {"steerability": np.full(3, np.nan)}).most_steerable) == 0
