"""One sequence, with an expert changed at one token in one of four ways, a row each, in one forward pass.

Every row starts from the untouched MLP; at its one token is added what the change makes of the output:

    off         − a_n (c_n * zD)        the expert alone is switched off
    up          + u_n (c_n * zD)        its coefficient raised by u_n, its 99th percentile
    other       + u_m (c_m * zD)        a random expert m of the same usage raised by its own
    direction   + r                     a random direction as long as that of ``up``

Shapes: T tokens, M contexts, I input width, O output width, W residual width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.language_model import LanguageModel
from trainer.layers.sparse import Routing, SparseLayer
from trainer.stand_ins import Mlp

ARMS = 4


class Changed(NamedTuple):
    """What is changed where, each [M]."""

    position: Tensor
    expert: Tensor
    unit: Tensor
    """u_n."""
    other: Tensor
    other_unit: Tensor


class Measured(NamedTuple):
    """For each context [M], in nats where nothing else is said."""

    added_loss: Tensor
    """Of the next token, by ``off``; NaN where the sequence ends."""
    kl_off: Tensor
    """KL from the untouched next-token distribution."""
    kl_up: Tensor
    kl_other: Tensor
    kl_direction: Tensor
    share: Tensor
    """Of the summed norms of what all active experts add on this token."""
    contribution: Tensor
    """What the expert adds, [M, O]."""
    residual: Tensor
    """The untouched residual stream behind the last block, [M, W]."""


@torch.no_grad()
def measure(
    language_model: LanguageModel, block: int, layer: SparseLayer, ids: list[int], changed: Changed, seed: int
) -> Measured:
    """Measure the changes on the sequence ``ids``, whose rows share all that lies below ``block``."""
    kept = ids[: int(changed.position.max()) + 1]
    rows = 1 if language_model.splits(block) else 1 + ARMS * len(changed.position)
    answer = _Rows(layer, changed, seed)
    with language_model.stand_in({block: answer}):
        residual_RTW = language_model.last_residual(torch.tensor([kept] * rows))
    place = changed.position.to(residual_RTW.device)
    untouched_MW = residual_RTW[0, place]
    arms_RW = residual_RTW[1:].gather(1, place.repeat(ARMS).view(-1, 1, 1).expand(-1, 1, residual_RTW.shape[2]))[:, 0]
    log_p_RV = language_model.logits_of(torch.cat([untouched_MW, arms_RW])).log_softmax(dim=-1)
    base_MV, off_MV, up_MV, other_MV, direction_MV = log_p_RV.split(len(place))
    return Measured(
        added_loss=_losses(off_MV, ids, changed.position) - _losses(base_MV, ids, changed.position),
        kl_off=_kl(base_MV, off_MV),
        kl_up=_kl(base_MV, up_MV),
        kl_other=_kl(base_MV, other_MV),
        kl_direction=_kl(base_MV, direction_MV),
        share=answer.share_M,
        contribution=answer.contribution_MO,
        residual=untouched_MW.float(),
    )


@dataclass(eq=False)
class _Rows:
    """Answers for the MLP with the untouched row and, behind it, the rows of each arm."""

    layer: SparseLayer
    changed: Changed
    seed: int

    def __call__(self, x_RTI: Tensor, mlp: Mlp) -> Tensor:
        place_M = self.changed.position.to(x_RTI.device)
        x_MI = x_RTI[0].float()[place_M]
        deltas_RO = self._deltas(x_MI)
        original_TO = mlp()[0]
        answer_RTO = original_TO.repeat(1 + len(deltas_RO), 1, 1)
        row_R = torch.arange(1, 1 + len(deltas_RO), device=x_RTI.device)
        answer_RTO[row_R, place_M.repeat(ARMS)] += deltas_RO.to(original_TO.dtype)
        return answer_RTO

    def _deltas(self, x_MI: Tensor) -> Tensor:
        """Of all arms, [4 M, O]."""
        routing = self.layer.route(x_MI)
        mine_MK = routing.indices_TK == self.changed.expert.to(x_MI.device).unsqueeze(1)
        coefficient_M = (routing.coefficients_TK * mine_MK).sum(dim=1)
        dense_MH = self.layer.dense_output(x_MI)
        norms_MK = self.layer.contribution_norms(dense_MH, routing)
        self.share_M = (norms_MK * mine_MK).sum(dim=1) / norms_MK.sum(dim=1).clamp_min(1e-12)
        self.contribution_MO = self._added(dense_MH, self.changed.expert, coefficient_M)
        up_MO = self._added(dense_MH, self.changed.expert, self.changed.unit)
        other_MO = self._added(dense_MH, self.changed.other, self.changed.other_unit)
        chance = torch.Generator().manual_seed(self.seed)
        random_MO = F.normalize(torch.randn(up_MO.shape, generator=chance), dim=1).to(up_MO.device)
        return torch.cat([-self.contribution_MO, up_MO, other_MO, random_MO * up_MO.norm(dim=1, keepdim=True)])

    def _added(self, dense_MH: Tensor, expert_M: Tensor, coefficient_M: Tensor) -> Tensor:
        columns = Routing(coefficient_M.to(dense_MH).unsqueeze(1), expert_M.to(dense_MH.device).unsqueeze(1))
        return self.layer.contribution(dense_MH, columns)


def _losses(log_p_MV: Tensor, ids: list[int], position_M: Tensor) -> Tensor:
    """−log p of the token that follows each position, NaN behind the last."""
    follows = [ids[place + 1] if place + 1 < len(ids) else -1 for place in position_M.tolist()]
    follows_M = torch.tensor(follows, device=log_p_MV.device)
    losses_M = -log_p_MV.gather(1, follows_M.clamp_min(0).unsqueeze(1))[:, 0]
    return losses_M.masked_fill(follows_M < 0, float("nan"))


def _kl(from_MV: Tensor, to_MV: Tensor) -> Tensor:
    return F.kl_div(to_MV, from_MV, log_target=True, reduction="none").sum(dim=1).clamp_min(0)
