"""Four interventions on an expert at one token of a sequence, batched as rows of one forward pass.

Each row keeps the original MLP's output and adds one vector at one token:

- ablation, −a_n (c_n * zD): remove the expert's contribution.
- amplification, +u_n (c_n * zD): raise its coefficient by u_n, its 99th percentile.
- random expert, +u_m (c_m * zD): raise a random expert m of similar density by its own 99th percentile.
- random direction, +r: add a random direction with the norm of the amplification.

Shapes: T tokens, M examples, R rows, I input width, O output width, W residual width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.base import Routing, SparseLayer

NUM_INTERVENTIONS = 4


class Interventions(NamedTuple):
    """Experts to intervene on and the token of each; each field [M]."""

    position: Tensor
    expert: Tensor
    unit: Tensor
    """99th percentile of the expert's coefficient, u_n."""
    random_expert: Tensor
    random_unit: Tensor
    """99th percentile of the random expert's coefficient, u_m."""


class InterventionEffects(NamedTuple):
    """Effects at each example, [M], in nats."""

    loss_increase: Tensor
    """Increase of the next token's loss under ablation; NaN at the end of the sequence."""
    kl_ablated: Tensor
    """KL divergence of the next-token distribution under ablation from the original one."""
    kl_amplified: Tensor
    kl_random_expert: Tensor
    kl_random_direction: Tensor
    share: Tensor
    """The expert's share of the summed norms of all active experts' contributions; no unit."""
    contribution: Tensor
    """Contribution of the expert to the MLP's output, [M, O]."""
    added: Tensor
    """Its part of the residual stream after the last block, by what the block adds because of it, [M, W]. NaN if the
    architecture has no direct effects."""
    residual: Tensor
    """Original residual stream after the last block, [M, W]."""


@torch.no_grad()
def measure_interventions(
    language_model: LanguageModel,
    layer: int,
    sparse_layer: SparseLayer,
    ids: list[int],
    interventions: Interventions,
    seed: int,
) -> InterventionEffects:
    """Apply all interventions to the sequence ``ids``. The blocks below ``layer`` are computed once for all rows."""
    positions_M = interventions.position
    prefix = ids[: int(positions_M.max()) + 1]
    rows = 1 if language_model.can_split_row(layer) else 1 + NUM_INTERVENTIONS * len(positions_M)
    mlp = _InterventionRows(sparse_layer, interventions, seed)
    with language_model.replace_mlps({layer: mlp}):
        residual_RTW = language_model.residual(torch.tensor([prefix] * rows))
    additions = language_model.additions
    factor = additions.passed_on(layer) if additions.has_direct_effects(layer) else float("nan")
    added_MW = factor * additions.of_vectors(layer, prefix, positions_M.tolist(), mlp.contribution_MO)
    index_M = positions_M.to(residual_RTW.device)
    original_MW = residual_RTW[0, index_M]
    row_R = torch.arange(1, len(residual_RTW), device=index_M.device)
    changed_RW = residual_RTW[row_R, index_M.repeat(NUM_INTERVENTIONS)]
    log_p_RV = language_model.unembed(torch.cat([original_MW, changed_RW])).log_softmax(dim=-1)
    original_MV, ablated_MV, amplified_MV, random_expert_MV, random_direction_MV = log_p_RV.split(len(index_M))
    return InterventionEffects(
        loss_increase=_losses(ablated_MV, ids, positions_M) - _losses(original_MV, ids, positions_M),
        kl_ablated=_kl(original_MV, ablated_MV),
        kl_amplified=_kl(original_MV, amplified_MV),
        kl_random_expert=_kl(original_MV, random_expert_MV),
        kl_random_direction=_kl(original_MV, random_direction_MV),
        share=mlp.share_M,
        contribution=mlp.contribution_MO,
        added=added_MW,
        residual=original_MW.float(),
    )


@dataclass(eq=False)
class _InterventionRows:
    """MLP replacement that returns the original output, followed by one row per intervention and example."""

    sparse_layer: SparseLayer
    interventions: Interventions
    seed: int

    def __call__(self, x_RTI: Tensor, mlp: Mlp) -> Tensor:
        index_M = self.interventions.position.to(x_RTI.device)
        added_RO = self._added_vectors(x_RTI[0].float()[index_M])
        original_TO = mlp()[0]
        output_RTO = original_TO.repeat(1 + len(added_RO), 1, 1)
        row_R = torch.arange(1, 1 + len(added_RO), device=x_RTI.device)
        output_RTO[row_R, index_M.repeat(NUM_INTERVENTIONS)] += added_RO.to(original_TO.dtype)
        return output_RTO

    def _added_vectors(self, x_MI: Tensor) -> Tensor:
        """Vectors that the interventions add to the MLP's output, [4 M, O]."""
        routing = self.sparse_layer.route(x_MI)
        is_expert_MK = routing.indices_TK == self.interventions.expert.to(x_MI.device).unsqueeze(1)
        coefficient_M = (routing.coefficients_TK * is_expert_MK).sum(dim=1)
        dense_MH = self.sparse_layer.dense_output(x_MI)
        norms_MK = self.sparse_layer.contribution_norms(dense_MH, routing)
        self.share_M = (norms_MK * is_expert_MK).sum(dim=1) / norms_MK.sum(dim=1).clamp_min(1e-12)
        self.contribution_MO = self._contribution(dense_MH, self.interventions.expert, coefficient_M)
        amplified_MO = self._contribution(dense_MH, self.interventions.expert, self.interventions.unit)
        random_MO = self._contribution(dense_MH, self.interventions.random_expert, self.interventions.random_unit)
        generator = torch.Generator().manual_seed(self.seed)
        noise_MO = F.normalize(torch.randn(amplified_MO.shape, generator=generator), dim=1).to(amplified_MO.device)
        direction_MO = noise_MO * amplified_MO.norm(dim=1, keepdim=True)
        return torch.cat([-self.contribution_MO, amplified_MO, random_MO, direction_MO])

    def _contribution(self, dense_MH: Tensor, expert_M: Tensor, coefficient_M: Tensor) -> Tensor:
        columns = Routing(coefficient_M.to(dense_MH).unsqueeze(1), expert_M.to(dense_MH.device).unsqueeze(1))
        return self.sparse_layer.contribution(dense_MH, columns)


def _losses(log_p_MV: Tensor, ids: list[int], position_M: Tensor) -> Tensor:
    """Loss of the token that follows each position, [M]; NaN at the end of the sequence."""
    next_ids = [ids[position + 1] if position + 1 < len(ids) else -1 for position in position_M.tolist()]
    next_M = torch.tensor(next_ids, device=log_p_MV.device)
    losses_M = -log_p_MV.gather(1, next_M.clamp_min(0).unsqueeze(1))[:, 0]
    return losses_M.masked_fill(next_M < 0, float("nan"))


def _kl(original_MV: Tensor, changed_MV: Tensor) -> Tensor:
    return F.kl_div(changed_MV, original_MV, log_target=True, reduction="none").sum(dim=1).clamp_min(0)
