"""The sources of a circuit in a row: which node each place stands for, and what each adds to targets.

Order: the embeddings of all tokens, then layer by layer the active experts and the errors of all tokens, or what the
untouched MLP wrote at each.

Shapes: B rows, T tokens, S sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.circuits.graph import Kind, Source
from trainer.circuits.passes import FrozenPass, Parts

PlaceKey = tuple[Kind, int, int | None, int | None]


class Place(NamedTuple):
    """Which node a source is."""

    kind: Kind
    position: int
    layer: int | None = None
    expert: int | None = None
    coefficient: float | None = None

    @property
    def key(self) -> PlaceKey:
        """What tells it from every other source of the text."""
        return self.kind, self.position, self.layer, self.expert


@dataclass(frozen=True)
class Sources:
    """All nodes that something can come from, in a fixed order."""

    places: Sequence[Place]
    kinds: Sequence[Source]
    """Of each place."""
    layers: Sequence[int]
    active: dict[int, Tensor]
    """Layer with a run -> places [P] of the active experts in a row's flattened routing [T * K]."""

    @classmethod
    def of(cls, it: FrozenPass) -> Sources:
        """Those of the first row of a pass; all rows are alike."""
        tokens = it.embedding_BTW.shape[1]
        places = [Place("embedding", position) for position in range(tokens)]
        layers, active = sorted({*it.sites, *it.mlps_BTO}), {}
        for layer in layers:
            if layer not in it.sites:
                places += [Place("mlp", position, layer) for position in range(tokens)]
                continue
            experts, active[layer] = _experts(it, layer, tokens)
            places += experts + [Place("error", position, layer) for position in range(tokens)]
        return cls(places, [_kind(place) for place in places], layers, active)

    def row(self, parts: Parts) -> Tensor:
        """What every source adds to the target of each row, [B, S], on the CPU."""
        rows = [parts.embeddings_BT]
        for layer in self.layers:
            if layer in self.active:
                rows += [parts.experts_BTK[layer].flatten(1)[:, self.active[layer]], parts.errors_BT[layer]]
            else:
                rows.append(parts.mlps_BT[layer])
        return torch.cat([values.cpu() for values in rows], dim=1)

    def by_kind(self, values_S: Tensor) -> dict[Source, float]:
        """The sum over the sources of each kind; kinds without a source are left out."""
        sums: dict[Source, float] = {}
        for kind, value in zip(self.kinds, values_S.tolist(), strict=True):
            sums[kind] = sums.get(kind, 0.0) + value
        return sums


def _experts(it: FrozenPass, layer: int, tokens: int) -> tuple[list[Place], Tensor]:
    site = it.sites[layer]
    columns = site.coefficients_PK.shape[1]
    coefficients_C = site.coefficients_PK.detach()[:tokens].flatten()
    active_P = (coefficients_C > 0).nonzero().squeeze(1)
    found = zip(
        active_P.tolist(),
        site.indices_PK[:tokens].flatten()[active_P].tolist(),
        coefficients_C[active_P].tolist(),
        strict=True,
    )
    places = [Place("expert", place // columns, layer, n, a) for place, n, a in found]
    return places, active_P


def _kind(place: Place) -> Source:
    assert place.kind != "target"
    return place.kind
