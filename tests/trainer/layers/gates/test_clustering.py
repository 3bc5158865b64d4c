"""Clustering into groups of equal size."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mxd.trainer.layers.gates.clustering import align_columns, cluster


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 90), size=st.integers(1, 20), seed=st.integers(0, 1000))
def test_every_row_is_in_one_group(rows: int, size: int, seed: int) -> None:
    rows_NI = torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed))
    assert sorted(cluster(rows_NI, size).tolist()) == list(range(rows))


def test_similar_rows_share_a_group() -> None:
    generator = torch.Generator().manual_seed(0)
    centres_GI = 5 * torch.randn(8, 16, generator=generator)
    of_N = torch.arange(8).repeat_interleave(12)[torch.randperm(96, generator=generator)]
    rows_NI = centres_GI[of_N] + 0.1 * torch.randn(96, 16, generator=generator)
    groups = of_N[cluster(rows_NI, 12)].view(8, 12)
    assert (groups == groups[:, :1]).all()


def test_identical_rows_are_assigned() -> None:
    assert sorted(cluster(torch.ones(10, 3), 3).tolist()) == list(range(10))


def test_columns_keep_every_row_of_the_grid() -> None:
    rows_NI = torch.randn(24, 5, generator=torch.Generator().manual_seed(0))
    grid_GS = torch.randperm(24, generator=torch.Generator().manual_seed(1)).view(4, 6)
    actual_GS = align_columns(rows_NI, grid_GS)
    assert torch.equal(actual_GS.sort(dim=1).values, grid_GS.sort(dim=1).values)
