"""Edits to the gate: what the experts of a layer do when some coefficients are changed by hand.

An edit never touches the weights. It adds columns to a ``Routing``: for each edited expert the difference between the
coefficient it should have and the one it has, so a difference of zero leaves the output as it is, to the bit.

Shapes: B rows of a batch, T tokens, I input width, M edited experts, K active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.config import Apply, Edit
from trainer.errors import UserError
from trainer.language_model import Mlp
from trainer.layers.sparse import Routing, SparseLayer


@dataclass(frozen=True)
class EditPlan:
    """Edits of one layer, checked, with the unit of each expert."""

    edits: tuple[Edit, ...]
    units: Mapping[int, float]
    """Expert -> its 99th percentile, the unit of ``add`` and ``set``; 1 where it is not known."""

    @classmethod
    def of(cls, edits: Sequence[Edit], units: Mapping[int, float], num_experts: int) -> EditPlan:
        """Check the edits against a layer of ``num_experts``.

        Raises:
            UserError: an edit names an expert that the layer does not have.
        """
        unknown = [edit.expert for edit in edits if edit.expert >= num_experts]
        if unknown:
            raise UserError(f"There is no expert {unknown[0]}; this run has experts 0 to {num_experts - 1}.")
        return cls(tuple(edits), {edit.expert: units.get(edit.expert) or 1.0 for edit in edits})

    @property
    def experts(self) -> list[int]:
        """The edited experts, each once."""
        return list(dict.fromkeys(edit.expert for edit in self.edits))

    def difference(self, routing: Routing) -> Routing:
        """What to add to the live coefficients: a routing of M columns, [T, M]."""
        experts = self.experts
        ids_M = torch.tensor(experts, dtype=torch.int64, device=routing.indices_TK.device)
        same_TKM = routing.indices_TK.unsqueeze(2) == ids_M
        live_TM = (routing.coefficients_TK.unsqueeze(2) * same_TKM).sum(dim=1)
        wanted_TM = live_TM.clone()
        for edit in self.edits:  # in order, so that several edits of one expert follow each other
            column = experts.index(edit.expert)
            wanted_TM[:, column] = _edited(edit, wanted_TM[:, column], self.units[edit.expert])
        return Routing(wanted_TM - live_TM, ids_M.expand_as(live_TM))


def _edited(edit: Edit, coefficients_T: Tensor, unit: float) -> Tensor:
    if edit.mode == "scale":
        return coefficients_T * edit.strength
    if edit.mode == "add":
        return coefficients_T + edit.strength * unit
    return torch.full_like(coefficients_T, edit.strength * unit if edit.mode == "set" else 0.0)


class EditedMlp:
    """Stands in for an MLP; edits some rows and tokens of what goes through.

    ``touched_BT`` says which; it is set before each forward pass. The routing of the last token of each row is kept.
    """

    def __init__(self, layer: SparseLayer, plan: EditPlan, apply: Apply) -> None:
        self.layer = layer
        self.plan = plan
        self.apply = apply
        self.touched_BT = torch.zeros(0, 0, dtype=torch.bool)
        self.last_x_BI: Tensor | None = None
        self.last_routing: Routing | None = None

    def __call__(self, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        """The output for every row and token, [B, T, O]."""
        x_TI = x_BTI.reshape(-1, x_BTI.shape[-1]).float()
        routing = self.layer.route(x_TI)
        self._keep_last(x_BTI, routing)
        changed = self._difference(routing, x_BTI.device)
        if self.apply == "on-top":
            untouched = mlp()
            if changed is None:
                return untouched
            return untouched + self.layer.contribution(x_TI, changed).to(x_BTI.dtype).reshape(untouched.shape)
        if changed is not None:
            routing = Routing(*(torch.cat(pair, dim=1) for pair in zip(routing, changed, strict=True)))
        return self.layer.decode(x_TI, routing).to(x_BTI.dtype).reshape(*x_BTI.shape[:-1], -1)

    def _difference(self, routing: Routing, device: torch.device) -> Routing | None:
        if not self.plan.edits:
            return None
        difference = self.plan.difference(routing)
        touched_T1 = self.touched_BT.to(device).reshape(-1, 1)
        return Routing(difference.coefficients_TK * touched_T1, difference.indices_TK)

    def _keep_last(self, x_BTI: Tensor, routing: Routing) -> None:
        rows, tokens = x_BTI.shape[:2]
        self.last_x_BI = x_BTI[:, -1].float()
        self.last_routing = Routing(*(values.reshape(rows, tokens, -1)[:, -1] for values in routing))
