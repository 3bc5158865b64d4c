"""Health of a layer's experts: load balance, near-duplicates, matrix ranks, shared experts and variation of the mixing.

Shapes: N experts, H hidden width, O output width, E sampled experts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from mxd.trainer.evaluation.metrics import LayerStatistics
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.metrics import ExpertRanks, effective_number, gini, measure_ranks
from mxd.trainer.layers.mxd import MxD

DUPLICATE_COSINE = 0.95
"""Cosine similarity from which two experts are near-duplicates."""
MAX_COMPARED = 4096
"""Number of random experts compared with all others. Comparing all pairs of 86,015 experts would take minutes."""
MAX_SAMPLED = 32
"""Number of random experts whose matrices are decomposed."""
LORENZ_POINTS = 101
_CHUNK = 1024


@dataclass(frozen=True)
class LoadBalance:
    """Distribution of load over the experts. An expert's load is its share of all activations."""

    dead_share: float
    """Share of experts that are active on no token."""
    entropy: float
    """Entropy of the load, in bits; log2 N if all experts are equally active."""
    effective_experts: float
    """2 to the power of the entropy."""
    gini: float
    """Gini coefficient of the load: 0 if all experts are equally active, 1 if one expert has all activations."""
    max_density: float
    """Largest activation density of an expert."""
    lorenz_curve: tuple[float, ...]
    """Share of all activations of the least active 0, 1, … 100 % of the experts."""
    density_edges: tuple[float, ...]
    """Edges of the density histogram's bins, equally spaced on a logarithmic scale."""
    density_counts: tuple[int, ...]
    """Number of experts in each bin of the density histogram. Dead experts are in none."""


@dataclass(frozen=True)
class NearDuplicates:
    """Cosine similarity of experts to their nearest neighbours, over a random sample of experts."""

    compared: int
    """Number of sampled experts."""
    share: float
    """Share of sampled experts with a near-duplicate: the same neighbour at a cosine of 0.95 or more for gate and
    scaling."""
    gate_median: float
    """Median cosine of gate vectors to their nearest neighbours."""
    gate_max: float
    scaling_median: float
    """Median cosine of scaling vectors to their nearest neighbours."""
    scaling_max: float


@dataclass(frozen=True)
class SampledExpertRanks(ExpertRanks):
    """Ranks of the matrices of a random sample of active experts."""

    sampled: int
    """Number of sampled experts."""


@dataclass(frozen=True)
class Health:
    """Health of a layer's experts."""

    load: LoadBalance
    near_duplicates: NearDuplicates
    expert_ranks: SampledExpertRanks | None
    """None for methods whose experts are vectors, and if no expert is active."""
    mixing_variation: float
    """Standard deviation of the mixing vector over tokens relative to its mean, each as a norm over entries."""


def measure_load(active_N: Tensor, tokens: int) -> LoadBalance:
    """Measure the load balance from the number of active tokens of each expert, [N]."""
    counts_N = np.sort(active_N.double().numpy())
    load = counts_N / max(counts_N.sum(), 1.0)
    density = counts_N / tokens
    effective = effective_number(active_N)
    lowest = np.floor(np.log10(1 / tokens))
    edges = np.logspace(lowest, 0, round(-lowest) * 4 + 1)
    cumulative = np.concatenate([[0.0], load.cumsum()])
    points = np.linspace(0, len(load), LORENZ_POINTS)
    return LoadBalance(
        dead_share=float((counts_N == 0).mean()),
        entropy=float(np.log2(effective)),
        effective_experts=effective,
        gini=gini(active_N),
        max_density=float(density[-1]),
        lorenz_curve=tuple(np.interp(points, np.arange(len(cumulative)), cumulative).tolist()),
        density_edges=tuple(edges.tolist()),
        density_counts=tuple(np.histogram(density[density > 0].clip(edges[0], 1), edges)[0].tolist()),
    )


@torch.no_grad()
def measure_health(sparse_layer: SparseLayer, statistics: LayerStatistics, seed: int) -> Health:
    """Measure a layer's health from its statistics on a text and from its weights."""
    generator = torch.Generator().manual_seed(seed)
    spread = statistics.mixing_variance_M.double().sum().sqrt()
    level = statistics.mixing_M.double().norm()
    near_duplicates = _near_duplicates(sparse_layer, generator)
    active_E = torch.nonzero(statistics.active_N).flatten()
    chosen_E = active_E[torch.randperm(len(active_E), generator=generator)[:MAX_SAMPLED]]
    ranks = measure_ranks(sparse_layer, chosen_E.tolist()) if isinstance(sparse_layer, MxD) and len(chosen_E) else None
    return Health(
        load=measure_load(statistics.active_N, statistics.tokens),
        near_duplicates=near_duplicates,
        expert_ranks=None if ranks is None else SampledExpertRanks(sampled=len(chosen_E), **asdict(ranks)),
        mixing_variation=float(spread / level) if level > 0 else float("nan"),
    )


def _near_duplicates(sparse_layer: SparseLayer, generator: torch.Generator) -> NearDuplicates:
    count = sparse_layer.config.num_experts
    chosen_E = torch.randperm(count, generator=generator)[:MAX_COMPARED].to(sparse_layer.table.device)
    gate_E, gate_ids_E = _nearest(sparse_layer.gate.rows(slice(None)), chosen_E)
    scaling_E, scaling_ids_E = _nearest(sparse_layer.table, chosen_E)
    both_E = (gate_E >= DUPLICATE_COSINE) & (scaling_E >= DUPLICATE_COSINE) & (gate_ids_E == scaling_ids_E)
    return NearDuplicates(
        compared=len(chosen_E),
        share=both_E.float().mean().item(),
        gate_median=gate_E.median().item(),
        gate_max=gate_E.max().item(),
        scaling_median=scaling_E.median().item(),
        scaling_max=scaling_E.max().item(),
    )


def _nearest(rows_NW: Tensor, chosen_E: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine similarity and index of the nearest other row, [E] each, for the chosen rows."""
    unit_NW = torch.nn.functional.normalize(rows_NW, dim=1)
    cosines, ids = [], []
    for part_C in chosen_E.split(_CHUNK):
        cosines_CN = unit_NW[part_C] @ unit_NW.T
        cosines_CN[torch.arange(len(part_C)), part_C] = -1.0
        best = cosines_CN.max(dim=1) if cosines_CN.shape[1] > 1 else cosines_CN.min(dim=1)
        cosines.append(best.values)
        ids.append(best.indices)
    return torch.cat(cosines).clamp(-1, 1).cpu(), torch.cat(ids).cpu()


@dataclass(frozen=True)
class SharedExperts:
    """Always-on experts or, if there are none, the most active expert."""

    experts: tuple[int, ...]
    always_on: int
    """Number of always-on experts."""
    density: float
    """Density of the most active expert."""
    coefficient_share: float
    """Their share of the sum of all activations."""
    output_share: float
    """Their share of the summed norms of all experts' contributions."""


def find_shared_experts(statistics: LayerStatistics, threshold: float) -> SharedExperts:
    """Find the always-on experts. ``threshold`` is the density from which an expert is always on."""
    density_N = statistics.active_N.double() / statistics.tokens
    always_on_E = torch.nonzero(density_N >= threshold).flatten()
    experts_E = always_on_E if len(always_on_E) else density_N.argmax().unsqueeze(0)
    return SharedExperts(
        experts=tuple(experts_E.tolist()),
        always_on=len(always_on_E),
        density=density_N.max().item(),
        coefficient_share=_share_of_sum(statistics.mass_N, experts_E),
        output_share=_share_of_sum(statistics.norm_N, experts_E),
    )


def _share_of_sum(values_N: Tensor, chosen_E: Tensor) -> float:
    total = values_N.sum().item()
    return values_N[chosen_E].sum().item() / total if total > 0 else float("nan")
