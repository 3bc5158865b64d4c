"""Influence of nodes and edges on the target, and pruning by influence.

The absolute weights of a traced node's incoming edges are normalised to sum to 1. A node's influence is the sum over
all paths to the target of the product of these shares. The influences of all origins of paths sum to 1 (Ameisen et al.,
Circuit Tracing, 2025, "Graph pruning"). Signs are ignored, so contributions that cancel still count.

Shapes: F traced nodes, S sources, R remaining nodes, E ends of edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class InputShares(NamedTuple):
    """Shares of each traced node's input by source."""

    traced: Sequence[int]
    """Source index of each traced node. The target comes first, with index -1."""
    shares_FS: Tensor
    """Normalised absolute edge weights. Each row sums to 1."""


class PrunedGraph(NamedTuple):
    """Remaining nodes and edges of a graph."""

    nodes: list[int]
    """Source indices, by descending influence."""
    edges: list[tuple[int, int, float]]
    """(source, traced node, influence), by descending influence."""
    influence: float
    """Share of all nodes' influence that the remaining nodes have."""
    edge_influence: float
    """Share of the influence between remaining nodes that the remaining edges have."""


def input_shares(traced: Sequence[int], weights_FS: Tensor) -> InputShares:
    """Normalise the absolute edge weights into each traced node."""
    sizes_FS = weights_FS.abs()
    return InputShares(traced, sizes_FS / sizes_FS.sum(1, keepdim=True).clamp_min(1e-30))


def total_influence(inputs: InputShares) -> Tensor:
    """Influence of every source on the target along all paths, [S]."""
    indices_F = torch.tensor(inputs.traced[1:], dtype=torch.int64)
    reached_S = total_S = inputs.shares_FS[0]
    # Every step moves to lower layers, so the loop ends.
    while len(indices_F) and bool((passed_F := reached_S[indices_F]).any()):
        reached_S = passed_F @ inputs.shares_FS[1:]
        total_S = total_S + reached_S
    return total_S


def prune(
    inputs: InputShares,
    influence_S: Tensor,
    is_expert_S: Tensor,
    max_nodes: int,
    share: float,
    edge_share: float,
) -> PrunedGraph:
    """Prune a graph to its most influential nodes and edges.

    Up to half of the nodes are reserved for experts. In a language model with few trained layers, the outputs of the
    other MLPs would otherwise fill the graph.

    Nodes without an edge to a remaining node are dropped, because they would be disconnected.

    Args:
        influence_S: influence of every source.
        is_expert_S: whether each source is an expert.
        max_nodes: maximum number of nodes.
        share: share of all nodes' influence to retain, if ``max_nodes`` allows.
        edge_share: share of the influence between the remaining nodes that their edges retain.
    """
    nodes = _most_influential(influence_S, is_expert_S, max_nodes, share)
    strongest = int(inputs.shares_FS[0].argmax())
    if strongest not in nodes:  # the target needs at least one edge
        nodes[-1] = strongest
    flows_ER, ends = _flows(inputs, influence_S, nodes)
    while not bool((is_connected_R := flows_ER.amax(0) > 0).all()):
        nodes = [node for node, is_connected in zip(nodes, is_connected_R.tolist(), strict=True) if is_connected]
        flows_ER, ends = _flows(inputs, influence_S, nodes)
    edges, edge_influence = _edges(flows_ER, ends, nodes, is_expert_S, edge_share)
    return PrunedGraph(nodes, edges, _share(influence_S[nodes], influence_S), edge_influence)


def _share(part: Tensor, whole: Tensor) -> float:
    """Share of a sum. Another order of summation rounds to slightly more than 1."""
    return min(float(part.sum() / whole.sum()), 1.0)


def _most_influential(influence_S: Tensor, is_expert_S: Tensor, max_nodes: int, share: float) -> list[int]:
    """Indices of the selected sources, by descending influence."""
    order_S = influence_S.argsort(descending=True, stable=True)
    order_S = order_S[influence_S[order_S] > 0]
    cumulative_S = influence_S[order_S].cumsum(0) / influence_S.sum()
    limit = min(int((cumulative_S < share).sum()) + 1, max_nodes)
    reserved = set(order_S[is_expert_S[order_S]][: limit // 2].tolist())
    others = [index for index in order_S.tolist() if index not in reserved][: limit - len(reserved)]
    chosen = reserved.union(others)
    return [index for index in order_S.tolist() if index in chosen]


def _flows(inputs: InputShares, influence_S: Tensor, nodes: list[int]) -> tuple[Tensor, list[int]]:
    """Influence along each edge from a node to the target or a traced node, [E, R], and the rows' ends, [E]."""
    remaining = set(nodes)
    rows = [row for row, index in enumerate(inputs.traced) if index == -1 or index in remaining]
    ends = [inputs.traced[row] for row in rows]
    weight_E = torch.tensor([1.0 if end == -1 else float(influence_S[end]) for end in ends])
    return weight_E.unsqueeze(1) * inputs.shares_FS[rows][:, nodes], ends


def _edges(
    flows_ER: Tensor, ends: list[int], nodes: list[int], is_expert_S: Tensor, share: float
) -> tuple[list[tuple[int, int, float]], float]:
    """Select the strongest edges that retain a share of all flow.

    The strongest edge from each node is added, and the strongest edge into each traced expert from an expert. Edges to
    the target would otherwise fill the graph, and no edge would say which earlier experts activated an expert.
    """
    flat = flows_ER.flatten()
    order = flat.argsort(descending=True, stable=True)
    needed = int((flat[order].cumsum(0) / flat.sum() < share).sum()) + 1
    chosen = set(order[:needed].tolist())
    chosen |= {int(row) * len(nodes) + column for column, row in enumerate(flows_ER.argmax(0).tolist())}
    from_experts_ER = flows_ER * is_expert_S[nodes]
    strongest_E = from_experts_ER.argmax(1).tolist()
    chosen |= {row * len(nodes) + strongest_E[row] for row, end in enumerate(ends) if end != -1}
    ranked = sorted((index for index in chosen if flat[index] > 0), key=lambda index: -float(flat[index]))
    edges = [(nodes[index % len(nodes)], ends[index // len(nodes)], float(flat[index])) for index in ranked]
    return edges, _share(flat[ranked], flat)
