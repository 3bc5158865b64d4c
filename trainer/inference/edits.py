"""Edits to the gate: changes of the coefficients of chosen experts.

Edits never change weights. They add columns to a ``Routing``: for each edited expert the difference between the edited
and the live coefficient. A difference of zero therefore leaves the output bit-identical.

Shapes: B batch rows, R rows with the same layer, T tokens, P tokens of some rows, I input width, O output width,
M edited experts (width of the dense output in ``dense_RTM``), K active experts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from mxd.trainer.config import Edit, SteeringMode
from mxd.trainer.errors import UserError
from mxd.trainer.inference.routing import RoutedExpert, routed_experts
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.layers.base import Routing, SparseLayer


class AffineChange(NamedTuple):
    """The edited coefficient as a function of the live coefficient a: factor * a + shift."""

    factor: float = 1.0
    shift: float = 0.0

    def then(self, edit: Edit, unit: float) -> AffineChange:
        """Compose with a further edit of the same expert, whose unit is ``unit``."""
        if edit.mode == "scale":
            return AffineChange(self.factor * edit.strength, self.shift * edit.strength)
        if edit.mode == "add":
            return AffineChange(self.factor, self.shift + edit.strength * unit)
        return AffineChange(0.0, edit.strength * unit if edit.mode == "set" else 0.0)


@dataclass(frozen=True)
class EditPlan:
    """The checked edits of one layer."""

    edits: tuple[Edit, ...]
    units: Mapping[int, float]
    """Expert -> its unit for ``add`` and ``set``: its 99th percentile, or 1 if that is unknown."""

    @classmethod
    def from_edits(cls, edits: Sequence[Edit], units: Mapping[int, float], num_experts: int) -> EditPlan:
        """Check the edits against a layer of ``num_experts``.

        Raises:
            UserError: an edit names an unknown expert.
        """
        unknown = [edit.expert for edit in edits if edit.expert >= num_experts]
        if unknown:
            raise UserError(f"Unknown expert {unknown[0]}. This run has experts 0 to {num_experts - 1}.")
        return cls(tuple(edits), {edit.expert: units.get(edit.expert) or 1.0 for edit in edits})

    @cached_property
    def changes(self) -> Mapping[int, AffineChange]:
        """Edited expert -> change of its coefficient; several edits of one expert are composed in order."""
        changes: dict[int, AffineChange] = {}
        for edit in self.edits:
            changes[edit.expert] = changes.get(edit.expert, AffineChange()).then(edit, self.units[edit.expert])
        return changes


def edit_routing(plans: Sequence[EditPlan], plan_of_T: Tensor, routing: Routing) -> Routing:
    """Difference between edited and live coefficients, as a routing of M columns.

    Computes all tokens together, whichever row they belong to: in a generation step they are few, and the cost is the
    number of kernels.

    Args:
        plans: distinct plans; M is the number of experts of the longest.
        plan_of_T: index of each token's plan; ``len(plans)`` for an unedited token.
        routing: the live routing.
    """
    columns = max(len(plan.changes) for plan in plans)
    # Padding: the identity change of expert 0.
    rows = [[*plan.changes.items(), *[(0, AffineChange())] * (columns - len(plan.changes))] for plan in plans]
    rows.append([(0, AffineChange())] * columns)
    device = routing.indices_TK.device
    ids_TM = torch.tensor([[expert for expert, _ in row] for row in rows], device=device)[plan_of_T]
    changes_TM2 = torch.tensor([[change for _, change in row] for row in rows], device=device)[plan_of_T]
    same_TKM = routing.indices_TK.unsqueeze(2) == ids_TM.unsqueeze(1)
    live_TM = (routing.coefficients_TK.unsqueeze(2) * same_TKM).sum(dim=1)
    factor_TM, shift_TM = changes_TM2.unbind(-1)
    return Routing(live_TM * factor_TM + shift_TM - live_TM, ids_TM)


@dataclass(frozen=True, eq=False)
class LayerEdits:
    """A sparse layer in one batch row, with its steering mode and edits."""

    sparse_layer: SparseLayer
    mode: SteeringMode
    plan: EditPlan


class EditedBlock:
    """The MLP function of one block in a forward pass over rows with different edits.

    Each row starts from the output of the original MLP or of its sparse layer. Its edits then add their difference on
    the tokens that they apply to. Rows with the same layer are routed and edited together.
    """

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self._layers: dict[int, _LayerRows] = {}

    def add_row(self, row: int, edits: LayerEdits, is_edited_T: list[bool]) -> None:
        """Apply ``edits`` to batch row ``row``; ``is_edited_T`` marks the tokens that its plan changes."""
        key = id(edits.sparse_layer)
        self._layers.setdefault(key, _LayerRows(edits.sparse_layer)).add_row(row, edits, is_edited_T)

    def __call__(self, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        """Output [B, T, O] of all rows."""
        num_replaced = sum(rows.num_replaced for rows in self._layers.values())
        output_BTO = mlp() if num_replaced < self._num_rows else None
        for rows in self._layers.values():
            output_BTO = rows.apply(x_BTI, output_BTO)
        assert output_BTO is not None
        return output_BTO

    def last_experts(self, batch_rows: Sequence[int]) -> list[tuple[RoutedExpert, ...]]:
        """Active experts on the last token of some batch rows, before edits, strongest first."""
        experts: dict[int, tuple[RoutedExpert, ...]] = {}
        for rows in self._layers.values():
            chosen = [index for index, row in enumerate(rows.batch_rows) if row in batch_rows]
            last = Routing(*(values[chosen, -1] for values in rows.routing_RT))
            routed = routed_experts(rows.sparse_layer, rows.dense_RTM[chosen, -1], last)
            experts |= dict(zip([rows.batch_rows[index] for index in chosen], routed, strict=True))
        return [experts[row] for row in batch_rows]


class _LayerRows:
    """The batch rows of one sparse layer in a forward pass."""

    def __init__(self, sparse_layer: SparseLayer) -> None:
        self.sparse_layer = sparse_layer
        self.batch_rows: list[int] = []
        self.num_replaced = 0
        self.dense_RTM = torch.zeros(0, 0, 0)
        self.routing_RT = Routing(self.dense_RTM, self.dense_RTM)
        self._edits: list[LayerEdits] = []
        self._is_edited: list[list[bool]] = []

    def add_row(self, row: int, edits: LayerEdits, is_edited_T: list[bool]) -> None:
        self.batch_rows.append(row)
        self.num_replaced += edits.mode == "replace"
        self._edits.append(edits)
        self._is_edited.append(is_edited_T)

    def apply(self, x_BTI: Tensor, output_BTO: Tensor | None) -> Tensor:
        """Route these rows and write them into the block's output, which is None if no row needs the MLP."""
        x_RTI = x_BTI[self.batch_rows].float()
        x_PI, shape = _flatten(x_RTI), x_RTI.shape[:2]
        self.routing_RT = Routing(*(values.reshape(*shape, -1) for values in self.sparse_layer.route(x_PI)))
        self.dense_RTM = self.sparse_layer.dense_output(x_PI).reshape(*shape, -1)
        if output_BTO is None:
            output_BTO = x_BTI.new_empty(*x_BTI.shape[:-1], self.sparse_layer.config.output_width)
        if replaced := [index for index, edits in enumerate(self._edits) if edits.mode == "replace"]:
            output_PO = self.sparse_layer.decode(_flatten(self.dense_RTM[replaced]), self._flat_routing(replaced))
            output_BTO[self._to_batch(replaced)] = self._unflatten(replaced, output_PO).to(output_BTO)
        if edited := [i for i, edits in enumerate(self._edits) if edits.plan.edits and any(self._is_edited[i])]:
            output_BTO[self._to_batch(edited)] += self._unflatten(edited, self._difference(edited)).to(output_BTO)
        return output_BTO

    def _difference(self, rows: list[int]) -> Tensor:
        """Change [P, O] of the output by the edits of some rows, in one product."""
        plans = list({id(self._edits[row].plan): self._edits[row].plan for row in rows}.values())
        index = {id(plan): number for number, plan in enumerate(plans)}
        plan_of = [
            index[id(self._edits[row].plan)] if is_edited else len(plans)
            for row in rows
            for is_edited in self._is_edited[row]
        ]
        plan_of_P = torch.tensor(plan_of, device=self.dense_RTM.device)
        difference = edit_routing(plans, plan_of_P, self._flat_routing(rows))
        return self.sparse_layer.contribution(_flatten(self.dense_RTM[rows]), difference)

    def _to_batch(self, rows: list[int]) -> list[int]:
        return [self.batch_rows[row] for row in rows]

    def _flat_routing(self, rows: list[int]) -> Routing:
        return Routing(*(_flatten(values[rows]) for values in self.routing_RT))

    def _unflatten(self, rows: list[int], values_PO: Tensor) -> Tensor:
        return values_PO.reshape(len(rows), self.dense_RTM.shape[1], -1)


def _flatten(values_RTX: Tensor) -> Tensor:
    # Not reshape(-1, ...): the dense output of a transcoder without a skip connection has no entries.
    return values_RTX.reshape(values_RTX.shape[:-1].numel(), values_RTX.shape[-1])
