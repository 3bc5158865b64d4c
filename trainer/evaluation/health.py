"""Whether a layer's experts share the work, differ from each other, and are the full maps that they could be.

Shapes: N experts, H hidden width, O output width, E sampled experts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from trainer.evaluation.statistics import Statistics
from trainer.expert_ranks import ExpertRanks, measure_ranks
from trainer.layers.mxd import MxD
from trainer.layers.sparse import SparseLayer
from trainer.metrics import effective_number, gini

DUPLICATE = 0.95
"""Cosine from which two experts count as one."""
COMPARED = 4096
"""Experts, drawn at random, that are compared with all others; a run of 86,015 would take minutes whole."""
SAMPLED = 32
"""Experts whose matrices are taken apart."""
POINTS = 101
_CHUNK = 1024


@dataclass(frozen=True)
class Load:
    """How the work is shared over the experts. Load is a share of all activations."""

    dead_share: float
    """Experts active on none of the tokens."""
    entropy: float
    """Of the load, in bits; log2 N where all are used alike."""
    effective_experts: float
    """2 to the power of the entropy."""
    gini: float
    """0: all are used alike. 1: one does it all."""
    largest_usage: float
    """Share of tokens on which the most used expert is active."""
    shares: tuple[float, ...]
    """Lorenz curve: share of the activations that the least used 0, 1, … 100 % of the experts have."""
    usage_edges: tuple[float, ...]
    """Edges of usage, equally wide on a logarithmic scale."""
    usage_counts: tuple[int, ...]
    """Experts between them; dead ones are in none."""


@dataclass(frozen=True)
class Twins:
    """How close each expert is to the nearest other, by cosine; over a sample where there are many."""

    compared: int
    share: float
    """Experts with a duplicate: a cosine of 0.95 or more, for gate and scaling both where there are both."""
    gate_median: float
    gate_largest: float
    scaling_median: float
    scaling_largest: float


@dataclass(frozen=True)
class Matrices(ExpertRanks):
    """The same, over experts that are active."""

    sampled: int


@dataclass(frozen=True)
class Health:
    """All of it."""

    load: Load
    twins: Twins
    matrices: Matrices | None
    """None for methods whose experts are single directions."""
    mixing_variation: float
    """Standard deviation of the mixing over tokens, as a share of its mean (root mean square over outputs of each)."""


def load_of(active_N: Tensor, tokens: int) -> Load:
    """From on how many of the tokens each expert is active."""
    counts_N = np.sort(active_N.double().numpy())
    load = counts_N / max(counts_N.sum(), 1.0)
    usage = counts_N / tokens
    effective = effective_number(active_N)
    first = np.floor(np.log10(1 / tokens))
    edges = np.logspace(first, 0, round(-first) * 4 + 1)
    lorenz = np.concatenate([[0.0], load.cumsum()])
    return Load(
        dead_share=float((counts_N == 0).mean()),
        entropy=float(np.log2(effective)),
        effective_experts=effective,
        gini=gini(active_N),
        largest_usage=float(usage[-1]),
        shares=tuple(np.interp(np.linspace(0, len(load), POINTS), np.arange(len(lorenz)), lorenz).tolist()),
        usage_edges=tuple(edges.tolist()),
        usage_counts=tuple(np.histogram(usage[usage > 0].clip(edges[0], 1), edges)[0].tolist()),
    )


@torch.no_grad()
def health_of(layer: SparseLayer, statistics: Statistics, seed: int) -> Health:
    """From what a pass over text has counted, and from the weights."""
    generator = torch.Generator().manual_seed(seed)
    spread = statistics.mixing_variance_M.double().sum().sqrt()
    level = statistics.mixing_M.double().norm()
    return Health(
        load=load_of(statistics.active_N, statistics.tokens),
        twins=_twins(layer, generator),
        matrices=_matrices(layer, statistics.active_N, generator) if isinstance(layer, MxD) else None,
        mixing_variation=float(spread / level) if level > 0 else float("nan"),
    )


def _twins(layer: SparseLayer, generator: torch.Generator) -> Twins:
    count = layer.config.num_experts
    chosen_E = torch.randperm(count, generator=generator)[:COMPARED].to(layer.table.device)
    gate_E, gate_ids_E = _nearest(layer.gate.rows(slice(None)), chosen_E)
    scaling_E, scaling_ids_E = _nearest(layer.table, chosen_E)
    both_E = (gate_E >= DUPLICATE) & (scaling_E >= DUPLICATE) & (gate_ids_E == scaling_ids_E)
    return Twins(
        compared=len(chosen_E),
        share=both_E.float().mean().item(),
        gate_median=gate_E.median().item(),
        gate_largest=gate_E.max().item(),
        scaling_median=scaling_E.median().item(),
        scaling_largest=scaling_E.max().item(),
    )


def _nearest(rows_NW: Tensor, chosen_E: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine with, and id of, the nearest other row, for some rows; a few at a time against all."""
    unit_NW = torch.nn.functional.normalize(rows_NW, dim=1)
    cosines, ids = [], []
    for part_C in chosen_E.split(_CHUNK):
        cosines_CN = unit_NW[part_C] @ unit_NW.T
        cosines_CN[torch.arange(len(part_C)), part_C] = -1.0
        best = cosines_CN.max(dim=1) if cosines_CN.shape[1] > 1 else cosines_CN.min(dim=1)
        cosines.append(best.values)
        ids.append(best.indices)
    return torch.cat(cosines).clamp(-1, 1).cpu(), torch.cat(ids).cpu()


def _matrices(layer: MxD, active_N: Tensor, generator: torch.Generator) -> Matrices | None:
    active_E = torch.nonzero(active_N).flatten()
    chosen_E = active_E[torch.randperm(len(active_E), generator=generator)[:SAMPLED]]
    if not len(chosen_E):
        return None
    return Matrices(sampled=len(chosen_E), **asdict(measure_ranks(layer, chosen_E.tolist())))


@dataclass(frozen=True)
class Shared:
    """The experts that are always on or, where none is, the one that is used most."""

    experts: tuple[int, ...]
    always_on: int
    """How many are on at so many tokens that they count as always on."""
    usage: float
    """Of the most used one."""
    share: float
    """Their share of all coefficients."""
    output_share: float
    """Their share of the norms of what the experts add."""


def shared_experts(statistics: Statistics, threshold: float) -> Shared:
    """Which experts these are; ``threshold`` is the usage from which one is always on."""
    usage_N = statistics.active_N.double() / statistics.tokens
    found_E = torch.nonzero(usage_N >= threshold).flatten()
    experts_E = found_E if len(found_E) else usage_N.argmax().unsqueeze(0)
    return Shared(
        experts=tuple(experts_E.tolist()),
        always_on=len(found_E),
        usage=usage_N.max().item(),
        share=_part(statistics.mass_N, experts_E),
        output_share=_part(statistics.norm_N, experts_E),
    )


def _part(values_N: Tensor, chosen_E: Tensor) -> float:
    whole = values_N.sum().item()
    return values_N[chosen_E].sum().item() / whole if whole > 0 else 0.0
