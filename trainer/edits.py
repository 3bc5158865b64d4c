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
        self._earlier: list[tuple[_LayerRows, int]] = []

    def add(self, place: int, edits: LayerEdits, touched: list[bool]) -> None:
        """Let ``edits`` answer in the row at ``place``; ``touched`` says which of its tokens the plan changes."""
        self._layers.setdefault(id(edits.layer), _LayerRows(edits.layer)).add(place, edits, touched)

    @property
    def reach(self) -> int:
        """How many blocks its layers write, this one counted."""
        return max(rows.layer.span for rows in self._layers.values())

    def follow(self, earlier: EditedBlock, distance: int) -> None:
        """Let layers of a block so far before this one, which write this one too, answer in their rows here."""
        self._earlier += [(rows, distance) for rows in earlier._layers.values() if rows.layer.span > distance]

    def __call__(self, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        """The output for every row and token, [B, T, O]."""
        writing = [*self._layers.values(), *(rows for rows, _ in self._earlier)]
        replaced = sum(rows.num_replaced for rows in writing)
        output_BTO = mlp() if replaced < self._rows else None
        for rows in self._layers.values():
            rows.read(x_BTI)
            output_BTO = rows.write(0, x_BTI, output_BTO)
        for rows, distance in self._earlier:
            output_BTO = rows.write(distance, x_BTI, output_BTO)
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


_Part = tuple[list[int], tuple[Tensor, ...]]
"""Places of some rows, and for each block that a layer writes the values [R, T, O] there."""


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
        self._written: list[_Part] = []
        self._added: list[_Part] = []

    def add(self, place: int, edits: LayerEdits, touched: list[bool]) -> None:
        self.places.append(place)
        self.num_replaced += edits.apply == "replace"
        self._edits.append(edits)
        self._touched.append(touched)

    def read(self, x_BTI: Tensor) -> None:
        """Route this layer's rows, and work out what they replace and what their edits add, in all blocks that the
        layer writes."""
        x_RTI = x_BTI[self.places].float()
        x_PI, shape = _flat(x_RTI), x_RTI.shape[:2]
        self.routing_RT = Routing(*(values.reshape(*shape, -1) for values in self.layer.route(x_PI)))
        self.dense_RTM = self.layer.dense_output(x_PI).reshape(*shape, -1)
        touched = [row for row, it in enumerate(self._edits) if it.plan.edits and any(self._touched[row])]
        replaced = [row for row, edits in enumerate(self._edits) if edits.apply == "replace"]
        self._written = [self._part(replaced, self._replaced(replaced))] if replaced else []
        self._added = [self._part(touched, self._change(touched))] if touched else []

    def write(self, distance: int, x_BTI: Tensor, output_BTO: Tensor | None) -> Tensor:
        """Write this layer's rows into the output of the block so far behind its own; the output is None where no row
        needs the MLP."""
        if output_BTO is None:
            output_BTO = x_BTI.new_empty(*x_BTI.shape[:-1], self.layer.config.output_width // self.layer.span)
        for places, parts in self._written:
            output_BTO[places] = parts[distance].to(output_BTO)
        for places, parts in self._added:
            output_BTO[places] += parts[distance].to(output_BTO)
        return output_BTO

    def _part(self, rows: list[int], values_PO: Tensor) -> _Part:
        values_RTO = values_PO.reshape(len(rows), self.dense_RTM.shape[1], -1)
        return [self.places[row] for row in rows], self.layer.parts(values_RTO)

    def _replaced(self, rows: list[int]) -> Tensor:
        return self.layer.decode(_flat(self.dense_RTM[rows]), self._routing_of(rows))

    def _change(self, rows: list[int]) -> Tensor:
        """What the edits of these rows change, all in one product."""
        plans = list({id(self._edits[row].plan): self._edits[row].plan for row in rows}.values())
        place = {id(plan): number for number, plan in enumerate(plans)}
        chosen = [
            place[id(self._edits[row].plan)] if is_touched else len(plans)
            for row in rows
            for is_touched in self._touched[row]
        ]
        plan_of_P = torch.tensor(chosen, device=self.dense_RTM.device)
        change = difference(plans, plan_of_P, self._routing_of(rows))
        return self.layer.contribution(_flat(self.dense_RTM[rows]), change)

    def _routing_of(self, rows: list[int]) -> Routing:
        return Routing(*(_flat(values[rows]) for values in self.routing_RT))


def _flat(values_RTX: Tensor) -> Tensor:
    # Not -1: what a transcoder makes of its input before its experts come in has no entries.
    return values_RTX.reshape(values_RTX.shape[:-1].numel(), values_RTX.shape[-1])
