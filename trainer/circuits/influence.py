"""Which nodes and edges matter: influence along all paths, and what is kept of the graph.

Each followed node's incoming edges are taken by size and divided by their sum: shares of what it is made of. Influence
is what comes of these shares along all paths from the target back, so the influences of all places where paths begin
add up to 1 (Ameisen et al., Circuit Tracing, 2025, "Graph pruning"). Signs play no part: what cancels still matters.

Shapes: F followed nodes, S sources, R kept nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Shares(NamedTuple):
    """Of each followed node, what share of it comes from each source."""

    followed: Sequence[int]
    """Their places among the sources; the target, which is none of them, is -1 and first."""
    shares_FS: Tensor


class Kept(NamedTuple):
    """What is left of a graph."""

    nodes: list[int]
    """Places of sources, most influence first."""
    edges: list[tuple[int, int, float]]
    """Source, followed node, influence; most influence first."""
    influence: float
    """Share of all nodes' influence that the kept ones hold."""
    edge_influence: float
    """Share of the influence between kept nodes that the kept edges hold."""


def shares(followed: Sequence[int], weights_FS: Tensor) -> Shares:
    """Edges by size, as shares of what goes into each followed node."""
    sizes_FS = weights_FS.abs()
    return Shares(followed, sizes_FS / sizes_FS.sum(1, keepdim=True).clamp_min(1e-30))


def influences(it: Shares) -> Tensor:
    """Of every source on the target, [S]."""
    places = torch.tensor(it.followed[1:], dtype=torch.int64)
    reached_S = total_S = it.shares_FS[0]
    # Every step back is a layer down, so this ends.
    while len(places) and bool((passed_F := reached_S[places]).any()):
        reached_S = passed_F @ it.shares_FS[1:]
        total_S = total_S + reached_S
    return total_S


def prune(it: Shares, influence_S: Tensor, most: int, share: float, edge_share: float) -> Kept:
    """Keep the most influential nodes that hold ``share`` of all influence, ``most`` of them at most, and their edges.

    A node from which nothing leads on to a kept one is left out: it would hang in the air.
    """
    order_S = influence_S.argsort(descending=True, stable=True)
    held_S = influence_S[order_S].cumsum(0) / influence_S.sum()
    needed = int((held_S < share).sum()) + 1
    nodes = [place for place in order_S[: min(needed, most)].tolist() if influence_S[place] > 0]
    strongest = int(it.shares_FS[0].argmax())
    if strongest not in nodes:  # something must lead to the target
        nodes[-1] = strongest
    flows_RR, ends = _flows(it, influence_S, nodes)
    while not bool((connected := flows_RR.amax(0) > 0).all()):
        nodes = [node for node, stays in zip(nodes, connected.tolist(), strict=True) if stays]
        flows_RR, ends = _flows(it, influence_S, nodes)
    edges, edge_influence = _edges(flows_RR, ends, nodes, edge_share)
    return Kept(nodes, edges, float(influence_S[nodes].sum() / influence_S.sum()), edge_influence)


def _flows(it: Shares, influence_S: Tensor, nodes: list[int]) -> tuple[Tensor, list[int]]:
    """Influence along each edge from a kept node to the target or a kept and followed one, and which these are."""
    kept = set(nodes)
    rows = [row for row, place in enumerate(it.followed) if place == -1 or place in kept]
    ends = [it.followed[row] for row in rows]
    weight_R = torch.tensor([1.0 if end == -1 else float(influence_S[end]) for end in ends])
    return weight_R.unsqueeze(1) * it.shares_FS[rows][:, nodes], ends


def _edges(
    flows_RR: Tensor, ends: list[int], nodes: list[int], share: float
) -> tuple[list[tuple[int, int, float]], float]:
    """The strongest edges that hold a share of all flow, and the strongest one of each node."""
    flat = flows_RR.flatten()
    order = flat.argsort(descending=True, stable=True)
    needed = int((flat[order].cumsum(0) / flat.sum() < share).sum()) + 1
    chosen = set(order[:needed].tolist())
    chosen |= {int(row) * len(nodes) + column for column, row in enumerate(flows_RR.argmax(0).tolist())}
    ranked = sorted((place for place in chosen if flat[place] > 0), key=lambda place: -float(flat[place]))
    edges = [(nodes[place % len(nodes)], ends[place // len(nodes)], float(flat[place])) for place in ranked]
    return edges, float(flat[ranked].sum() / flat.sum())
