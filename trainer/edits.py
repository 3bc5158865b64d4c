"""Edits to the gate: what the experts of a layer do when some coefficients are changed by hand.

An edit never touches the weights. It adds columns to a ``Routing``: for each edited expert the difference between the
coefficient it should have and the one it has, so a difference of zero leaves the output as it is, to the bit.

Shapes: B rows of a batch, R rows of one layer, T tokens, P tokens of some rows, I input width, O output
width, M edited experts, K active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.config import Apply, Edit
from trainer.errors import UserError
from trainer.layers.sparse import Routing, SparseLayer
from trainer.routing import RoutedExpert, routed_experts
from trainer.stand_ins import Mlp


class Change(NamedTuple):
    """What edits make of a live coefficient a: factor * a + shift."""

    factor: float = 1.0
    shift: float = 0.0

    def then(self, edit: Edit, unit: float) -> Change:
        """This, and then an edit of an expert with this unit."""
        if edit.mode == "scale":
            return Change(self.factor * edit.strength, self.shift * edit.strength)
        if edit.mode == "add":
            return Change(self.factor, self.shift + edit.strength * unit)
        return Change(0.0, edit.strength * unit if edit.mode == "set" else 0.0)


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

    @cached_property
    def changes(self) -> Mapping[int, Change]:
        """Edited expert -> what becomes of its coefficient: several edits of one expert follow each other."""
        found: dict[int, Change] = {}
        for edit in self.edits:
            found[edit.expert] = found.get(edit.expert, Change()).then(edit, self.units[edit.expert])
        return found


def difference(plans: Sequence[EditPlan], plan_of_T: Tensor, routing: Routing) -> Routing:
    """What edits add to the live coefficients: a routing of M columns, as many as the longest plan has experts.

    All tokens are worked on at once, whosever they are: a step of generation has few, and its cost is that of starting
    an operation.

    Args:
        plans: each once.
        plan_of_T: the place of each token's own among them; ``len(plans)`` where nothing is edited.
        routing: the live one.
    """
    columns = max(len(plan.changes) for plan in plans)
    # What fills a row up changes nothing: expert 0 as it is.
    rows = [[*plan.changes.items(), *[(0, Change())] * (columns - len(plan.changes))] for plan in plans]
    rows.append([(0, Change())] * columns)
    device = routing.indices_TK.device
    ids_TM = torch.tensor([[expert for expert, _ in row] for row in rows], device=device)[plan_of_T]
    changes_TM2 = torch.tensor([[change for _, change in row] for row in rows], device=device)[plan_of_T]
    same_TKM = routing.indices_TK.unsqueeze(2) == ids_TM.unsqueeze(1)
    live_TM = (routing.coefficients_TK.unsqueeze(2) * same_TKM).sum(dim=1)
    factor_TM, shift_TM = changes_TM2.unbind(-1)
    return Routing(live_TM * factor_TM + shift_TM - live_TM, ids_TM)


@dataclass(frozen=True, eq=False)
class LayerEdits:
    """What answers for one MLP in one row: a layer, how it is applied, and the edits to its gate."""

    layer: SparseLayer
    apply: Apply
    plan: EditPlan


class EditedBlock:
    """Stands in for the MLP of one block, in one forward pass over rows that may each be edited in their own way.

    A row starts from the untouched MLP or from its layer in place of it; then comes the difference that its edits
    make, on the tokens that they touch. Rows with the same layer are routed and edited together.
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
        if rows := [row for row, it in enumerate(self._edits) if it.plan.edits and any(self._touched[row])]:
            self._edit(rows, output_BTO)
        return output_BTO

    def _replace(self, output_BTO: Tensor) -> None:
        rows = [row for row, edits in enumerate(self._edits) if edits.apply == "replace"]
        decoded_PO = self.layer.decode(_flat(self.dense_RTM[rows]), self._routing_of(rows))
        places = [self.places[row] for row in rows]
        output_BTO[places] = decoded_PO.to(output_BTO.dtype).reshape(len(rows), *output_BTO.shape[1:])

    def _edit(self, rows: list[int], output_BTO: Tensor) -> None:
        """Add what the edits of these rows change, all in one product."""
        plans = list({id(self._edits[row].plan): self._edits[row].plan for row in rows}.values())
        place = {id(plan): number for number, plan in enumerate(plans)}
        chosen = [
            place[id(self._edits[row].plan)] if is_touched else len(plans)
            for row in rows
            for is_touched in self._touched[row]
        ]
        plan_of_P = torch.tensor(chosen, device=output_BTO.device)
        change = self.layer.contribution(
            _flat(self.dense_RTM[rows]), difference(plans, plan_of_P, self._routing_of(rows))
        )
        places = [self.places[row] for row in rows]
        output_BTO[places] += change.to(output_BTO.dtype).reshape(len(rows), *output_BTO.shape[1:])

    def _routing_of(self, rows: list[int]) -> Routing:
        return Routing(*(_flat(values[rows]) for values in self.routing_RT))


def _flat(values_RTX: Tensor) -> Tensor:
    # Not -1: what a transcoder makes of its input before its experts come in has no entries.
    return values_RTX.reshape(values_RTX.shape[:-1].numel(), values_RTX.shape[-1])
