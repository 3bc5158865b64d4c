"""Influence and pruning on small graphs with results computed by hand."""

from __future__ import annotations

import pytest
import torch

from mxd.trainer.analysis.circuits.pruning import input_shares, prune, total_influence

# Sources: 0 and 1 are tokens, 2 and 3 experts, 4 an expert that was not traced.
WEIGHTS = torch.tensor(
    [
        [0.0, 0.1, -0.6, 0.3, 0.0],  # into the target
        [2.0, 0.0, 0.0, -2.0, 0.0],  # into 2
        [0.0, 3.0, 0.0, 0.0, 1.0],  # into 3
    ]
)
SHARES = input_shares((-1, 2, 3), WEIGHTS)
IS_EXPERT = torch.tensor([False, False, True, True, True])


def test_shares_are_normalised_absolute_weights() -> None:
    torch.testing.assert_close(SHARES.shares_FS[0], torch.tensor([0.0, 0.1, 0.6, 0.3, 0.0]))
    torch.testing.assert_close(SHARES.shares_FS[1], torch.tensor([0.5, 0.0, 0.0, 0.5, 0.0]))


def test_influence_flows_along_all_paths() -> None:
    influence_S = total_influence(SHARES)
    of_3 = 0.3 + 0.6 * 0.5
    expected = [0.6 * 0.5, 0.1 + of_3 * 0.75, 0.6, of_3, of_3 * 0.25]
    torch.testing.assert_close(influence_S, torch.tensor(expected))
    assert float(influence_S[[0, 1, 4]].sum()) == pytest.approx(1)


def test_without_traced_experts_influence_is_direct() -> None:
    torch.testing.assert_close(total_influence(input_shares((-1,), WEIGHTS[:1])), SHARES.shares_FS[0])


def test_the_most_influential_nodes_remain() -> None:
    pruned = prune(SHARES, total_influence(SHARES), IS_EXPERT, max_nodes=3, share=1.0, edge_share=1.0)
    assert set(pruned.nodes) == {1, 2, 3}
    assert pruned.influence == pytest.approx((0.55 + 0.6 + 0.6) / 2.2)
    assert pruned.edge_influence == pytest.approx(1)
    assert {(source, end) for source, end, _ in pruned.edges} == {(2, -1), (3, -1), (1, -1), (3, 2), (1, 3)}
    assert pruned.edges[0][:2] == (2, -1)
    assert pruned.edges[0][2] == pytest.approx(0.6)


def test_no_more_nodes_remain_than_the_share_needs() -> None:
    assert len(prune(SHARES, total_influence(SHARES), IS_EXPERT, max_nodes=5, share=0.5, edge_share=1.0).nodes) == 2


def test_half_of_the_nodes_are_reserved_for_experts() -> None:
    inputs = input_shares((-1,), torch.tensor([[0.5, 0.2, 0.15, 0.1, 0.05]]))
    pruned = prune(inputs, total_influence(inputs), torch.tensor([False, False, False, True, True]), 3, 1.0, 1.0)
    assert pruned.nodes == [0, 1, 3]


def test_every_node_retains_its_strongest_edge() -> None:
    pruned = prune(SHARES, total_influence(SHARES), IS_EXPERT, max_nodes=5, share=1.0, edge_share=0.01)
    assert {source for source, _, _ in pruned.edges} == set(pruned.nodes)
    assert pruned.edge_influence < 1


def test_disconnected_nodes_are_dropped() -> None:
    # All paths of source 0 lead through sources that are pruned.
    weights = torch.tensor(
        [[0.0, 0.5, 0.5, 0.4, 0.4, 0.4], [5.0, 0.0, 0.0, 0.0, 0.0, 0.0], [5.0, 0, 0, 0, 0, 0], [5.0, 0, 0, 0, 0, 0]]
    )
    inputs = input_shares((-1, 3, 4, 5), weights)
    influence_S = total_influence(inputs)
    assert int(influence_S.argmax()) == 0
    pruned = prune(inputs, influence_S, torch.zeros(6, dtype=torch.bool), max_nodes=3, share=1.0, edge_share=1.0)
    assert pruned.nodes == [1, 2]


def test_every_expert_retains_its_strongest_input_from_an_expert() -> None:
    weights = WEIGHTS.clone()
    weights[1, 3] = -1.0  # 3 contributes more to the target than to 2
    inputs = input_shares((-1, 2, 3), weights)
    pruned = prune(inputs, total_influence(inputs), IS_EXPERT, max_nodes=5, share=1.0, edge_share=0.01)
    assert (3, 2) in {(source, end) for source, end, _ in pruned.edges}


def test_the_target_always_has_an_edge() -> None:
    weights = torch.tensor([[0.0, 0.3, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    inputs = input_shares((-1, 1, 2, 3), weights)
    pruned = prune(inputs, total_influence(inputs), torch.arange(4) > 0, max_nodes=1, share=1.0, edge_share=1.0)
    assert pruned.nodes == [3]
    ((source, end, influence),) = pruned.edges
    assert (source, end) == (3, -1)
    assert influence == pytest.approx(0.4)
