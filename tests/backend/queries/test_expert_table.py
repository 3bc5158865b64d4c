"""Pages of any selection in any order, against sorting the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxd.backend.queries.expert_table import Columns

SIZE = 40
KEPT = st.just([True] * SIZE) | st.lists(st.booleans(), min_size=SIZE, max_size=SIZE)
VALUES = st.lists(st.integers(0, 4), min_size=SIZE, max_size=SIZE)


@given(VALUES, KEPT, st.booleans(), st.integers(1, 9))
def test_full_pages_contain_all_experts(values: list[int], kept: list[bool], descending: bool, limit: int) -> None:
    keys = np.array(values, np.float64)
    columns = Columns(np.arange(SIZE), {})
    chosen = None if all(kept) else np.array(kept)
    pages: list[list[int]] = []
    last = None
    while page := columns.after(keys, chosen, descending, last, limit):
        pages.append([expert for _, expert in page])
        last = page[-1]
    wanted = sorted((values[i], i) for i in range(SIZE) if kept[i])
    assert [expert for page in pages for expert in page] == [i for _, i in (wanted[::-1] if descending else wanted)]
    assert all(len(page) == limit for page in pages[:-1])


@pytest.mark.parametrize("descending", [False, True])
def test_experts_without_a_value_come_last(descending: bool) -> None:
    values = {"steerability": np.array([np.nan, 0.2, 0.0, 0.1]), "active_tokens": np.array([5.0, 5.0, 0.0, 5.0])}
    columns = Columns(np.arange(4), values)
    found = columns.after(columns.keys("steerability", descending), None, descending, None, 4)
    dead_and_unknown = {0, 2}
    assert [expert for _, expert in found[:2]] == ([1, 3] if descending else [3, 1])
    assert {expert for _, expert in found[2:]} == dead_and_unknown


def test_steerable_experts_have_the_highest_steerability() -> None:
    steerability = np.linspace(0, 1, 41)
    steerability[0] = np.nan
    columns = Columns(np.arange(100, 141), {"steerability": steerability})
    assert columns.most_steerable.tolist() == [139, 140]
    assert len(Columns(np.arange(3), {"steerability": np.full(3, np.nan)}).most_steerable) == 0
