"""Flat list of a circuit's source nodes, which gives every node an index.

The embeddings of all tokens come first. Then follow, layer by layer, the active experts and the errors of all tokens,
or the original MLP's outputs at all tokens.

Shapes: R targets, T tokens, S sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mxd.trainer.analysis.circuits.forward_pass import Contributions, LayerSite, LinearizedPass
from mxd.trainer.analysis.circuits.graph import Kind, NodeKey, Source


class SourceNode(NamedTuple):
    """A node from which contributions come."""

    kind: Kind
    position: int
    layer: int | None = None
    expert: int | None = None
    coefficient: float | None = None

    @property
    def key(self) -> NodeKey:
        """Identity of the node among all sources of the text."""
        return self.kind, self.position, self.layer, self.expert


@dataclass(frozen=True)
class Sources:
    """All source nodes, in a fixed order."""

    nodes: Sequence[SourceNode]
    kinds: Sequence[Source]
    """Kind of each node."""
    layers: Sequence[int]
    active: dict[int, Tensor]
    """Indices of the active experts in the flattened routing [T * K], [P], for each layer with a run."""

    @classmethod
    def from_pass(cls, forward_pass: LinearizedPass) -> Sources:
        """Sources of a pass."""
        tokens = forward_pass.embedding_1TW.shape[1]
        nodes = [SourceNode("embedding", position) for position in range(tokens)]
        layers, active = sorted({*forward_pass.sites, *forward_pass.mlps_1TO}), {}
        for layer in layers:
            if layer not in forward_pass.sites:
                nodes += [SourceNode("mlp", position, layer) for position in range(tokens)]
                continue
            experts, active[layer] = _active_experts(forward_pass.sites[layer], layer)
            nodes += experts + [SourceNode("error", position, layer) for position in range(tokens)]
        return cls(nodes, [_kind(node) for node in nodes], layers, active)

    def flatten(self, contributions: Contributions) -> Tensor:
        """Contribution of every source to each target, [R, S], on the CPU."""
        rows = [contributions.embeddings_RT]
        for layer in self.layers:
            if layer in self.active:
                rows += [
                    contributions.experts_RTK[layer].flatten(1)[:, self.active[layer]],
                    contributions.errors_RT[layer],
                ]
            else:
                rows.append(contributions.mlps_RT[layer])
        return torch.cat([values.cpu() for values in rows], dim=1)

    def by_kind(self, values_S: Tensor) -> dict[Source, float]:
        """Sum the values of each kind of source. Kinds without sources are omitted."""
        sums: dict[Source, float] = {}
        for kind, value in zip(self.kinds, values_S.tolist(), strict=True):
            sums[kind] = sums.get(kind, 0.0) + value
        return sums


def _active_experts(site: LayerSite, layer: int) -> tuple[list[SourceNode], Tensor]:
    columns = site.coefficients_TK.shape[1]
    coefficients_C = site.coefficients_TK.detach().flatten()
    active_P = (coefficients_C > 0).nonzero().squeeze(1)
    rows = zip(
        active_P.tolist(),
        site.indices_TK.flatten()[active_P].tolist(),
        coefficients_C[active_P].tolist(),
        strict=True,
    )
    nodes = [SourceNode("expert", index // columns, layer, n, a) for index, n, a in rows]
    return nodes, active_P


def _kind(node: SourceNode) -> Source:
    assert node.kind != "target"
    return node.kind
