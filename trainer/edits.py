"""Edits to the gate: what the experts of a layer do when some coefficients are changed by hand.

An edit never touches the weights. It adds columns to a ``Routing``: for each edited expert the difference between the
coefficient it should have and the one it has, so a difference of zero leaves the output as it is, to the bit.

Shapes: B rows of a batch, R rows of one layer, T tokens, I input width, O output width, M edited experts, K active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.config import Apply, Edit
from trainer.errors import UserError
from trainer.layers.sparse import Routing, SparseLayer
from trainer.routing import RoutedExpert, routed_experts
from trainer.stand_ins import Mlp


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


@dataclass(frozen=True, eq=False)
class LayerEdits:
    """What answers for one MLP in one row: a layer, how it is applied, and the edits to its gate."""

    layer: SparseLayer
    apply: Apply
    plan: EditPlan


class EditedBlock:
    """Stands in for the MLP of one block, in one forward pass over rows that may each be edited in their own way.

    A row starts from the untouched MLP or from its layer in place of it; then comes the difference that its edits
    make, on the tokens that they touch. Rows with the same layer are routed together, rows with the same plan edited
    together.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._layers: dict[int, _LayerRows] = {}

    def add(self, place: int, edits: LayerEdits, touched: list[bool]) -> None:
        """Let ``edits`` answer in the row at ``place``; ``touched`` says which of its tokens the plan changes."""
        self._layers.setdefault(id(edits.layer), _LayerRows(edits.layer)).add(place, edits, touched)

    def __call__(self, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        """The output for every row and token, [B, T, O]."""
        replaced = sum(rows.num_replaced for rows in self._layers.values())
        output_BTO = mlp() if replaced < self._rows else None
        for rows in self._layers.values():
            output_BTO = rows.answer(x_BTI, output_BTO)
        assert output_BTO is not None
        return output_BTO

    def last_experts(self, places: Sequence[int]) -> list[tuple[RoutedExpert, ...]]:
        """The experts that are active on the last token of some rows, edits not counted, largest coefficient first."""
        found: dict[int, tuple[RoutedExpert, ...]] = {}
        for rows in self._layers.values():
            chosen = [row for row, place in enumerate(rows.places) if place in places]
            last = Routing(*(values[chosen, -1] for values in rows.routing_RT))
            experts = routed_experts(rows.layer, rows.dense_RTM[chosen, -1], last)
            found |= dict(zip([rows.places[row] for row in chosen], experts, strict=True))
        return [found[place] for place in places]


class _LayerRows:
    """The rows of one layer in a forward pass."""

    def __init__(self, layer: SparseLayer) -> None:
        self.layer = layer
        self.places: list[int] = []
        self.num_replaced = 0
        self.dense_RTM = torch.zeros(0, 0, 0)
        self.routing_RT = Routing(self.dense_RTM, self.dense_RTM)
        self._edits: list[LayerEdits] = []
        self._touched: list[list[bool]] = []

    def add(self, place: int, edits: LayerEdits, touched: list[bool]) -> None:
        self.places.append(place)
        self.num_replaced += edits.apply == "replace"
        self._edits.append(edits)
        self._touched.append(touched)

    def answer(self, x_BTI: Tensor, output_BTO: Tensor | None) -> Tensor:
        """Write this layer's rows into the output, which is None where no row needs the MLP."""
        x_RTI = x_BTI[self.places].float()
        x_PI, shape = _flat(x_RTI), x_RTI.shape[:2]
        self.routing_RT = Routing(*(values.reshape(*shape, -1) for values in self.layer.route(x_PI)))
        self.dense_RTM = self.layer.dense_output(x_PI).reshape(*shape, -1)
        if output_BTO is None:
            output_BTO = x_BTI.new_empty(*x_BTI.shape[:-1], self.layer.config.output_width)
        if self.num_replaced:
            self._replace(output_BTO)
        for rows in self._by_plan():
            self._edit(rows, output_BTO)
        return output_BTO

    def _replace(self, output_BTO: Tensor) -> None:
        rows = [row for row, edits in enumerate(self._edits) if edits.apply == "replace"]
        decoded_PO = self.layer.decode(_flat(self.dense_RTM[rows]), self._routing_of(rows))
        places = [self.places[row] for row in rows]
        output_BTO[places] = decoded_PO.to(output_BTO.dtype).reshape(len(rows), *output_BTO.shape[1:])

    def _by_plan(self) -> list[list[int]]:
        """Rows of each plan that changes anything in this pass."""
        found: dict[int, list[int]] = {}
        for row, edits in enumerate(self._edits):
            if edits.plan.edits and any(self._touched[row]):
                found.setdefault(id(edits.plan), []).append(row)
        return list(found.values())

    def _edit(self, rows: list[int], output_BTO: Tensor) -> None:
        difference = self._edits[rows[0]].plan.difference(self._routing_of(rows))
        touched = [self._touched[row] for row in rows]
        if not all(map(all, touched)):
            touched_P1 = torch.tensor(touched, device=output_BTO.device).reshape(-1, 1)
            difference = Routing(difference.coefficients_TK * touched_P1, difference.indices_TK)
        change_PO = self.layer.contribution(_flat(self.dense_RTM[rows]), difference).to(output_BTO.dtype)
        output_BTO[[self.places[row] for row in rows]] += change_PO.reshape(len(rows), *output_BTO.shape[1:])

    def _routing_of(self, rows: list[int]) -> Routing:
        return Routing(*(_flat(values[rows]) for values in self.routing_RT))


def _flat(values_RTX: Tensor) -> Tensor:
    # Not -1: what a transcoder makes of its input before its experts come in has no entries.
    return values_RTX.reshape(values_RTX.shape[:-1].numel(), values_RTX.shape[-1])
