"""Influence and pruning by hand, on graphs that can be followed by eye."""

from __future__ import annotations

import pytest
import torch

from trainer.circuits.influence import influences, prune, shares

# Sources: 0 and 1 are tokens, 2 and 3 experts, 4 an expert that was not followed.
WEIGHTS = torch.tensor(
    [
        [0.0, 0.1, -0.6, 0.3, 0.0],  # into the target
        [2.0, 0.0, 0.0, -2.0, 0.0],  # into 2
        [0.0, 3.0, 0.0, 0.0, 1.0],  # into 3
    ]
)
SHARES = shares((-1, 2, 3), WEIGHTS)


def test_shares_are_sizes_over_their_sum() -> None:
    torch.testing.assert_close(SHARES.shares_FS[0], torch.tensor([0.0, 0.1, 0.6, 0.3, 0.0]))
    torch.testing.assert_close(SHARES.shares_FS[1], torch.tensor([0.5, 0.0, 0.0, 0.5, 0.0]))


def test_influence_goes_along_all_paths() -> None:
    found = influences(SHARES)
    of_3 = 0.3 + 0.6 * 0.5
    wanted = [0.6 * 0.5, 0.1 + of_3 * 0.75, 0.6, of_3, of_3 * 0.25]
    torch.testing.assert_close(found, torch.tensor(wanted))
    assert float(found[[0, 1, 4]].sum()) == pytest.approx(1)


def test_nothing_followed_is_the_target_alone() -> None:
    torch.testing.assert_close(influences(shares((-1,), WEIGHTS[:1])), SHARES.shares_FS[0])


def test_the_most_influential_are_kept() -> None:
    kept = prune(SHARES, influences(SHARES), most=3, share=1.0, edge_share=1.0)
    assert set(kept.nodes) == {1, 2, 3}
    assert kept.influence == pytest.approx((0.55 + 0.6 + 0.6) / 2.2)
    assert kept.edge_influence == pytest.approx(1)
    assert {(source, end) for source, end, _ in kept.edges} == {(2, -1), (3, -1), (1, -1), (3, 2), (1, 3)}
    assert kept.edges[0][:2] == (2, -1)
    assert kept.edges[0][2] == pytest.approx(0.6)


def test_no_more_are_kept_than_the_share_needs() -> None:
    assert len(prune(SHARES, influences(SHARES), most=5, share=0.5, edge_share=1.0).nodes) == 2


def test_every_kept_node_keeps_its_strongest_edge() -> None:
    kept = prune(SHARES, influences(SHARES), most=5, share=1.0, edge_share=0.01)
    assert {source for source, _, _ in kept.edges} == set(kept.nodes)
    assert kept.edge_influence < 1


def test_what_leads_nowhere_is_left_out() -> None:
    # 0 is most of 3 but 3 is too weak to be kept: nothing of 0 is seen.
    weights = torch.tensor(
        [[0.0, 0.5, 0.5, 0.4, 0.4, 0.4], [5.0, 0.0, 0.0, 0.0, 0.0, 0.0], [5.0, 0, 0, 0, 0, 0], [5.0, 0, 0, 0, 0, 0]]
    )
    it = shares((-1, 3, 4, 5), weights)
    found = influences(it)
    assert int(found.argmax()) == 0
    kept = prune(it, found, most=3, share=1.0, edge_share=1.0)
    assert kept.nodes == [1, 2]


def test_something_always_leads_to_the_target() -> None:
    weights = torch.tensor([[0.0, 0.3, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    it = shares((-1, 1, 2, 3), weights)
    kept = prune(it, influences(it), most=1, share=1.0, edge_share=1.0)
    assert kept.nodes == [3]
    ((source, end, influence),) = kept.edges
    assert (source, end) == (3, -1)
    assert influence == pytest.approx(0.4)
