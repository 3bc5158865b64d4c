"""Edits to the gate: changes of the activations of chosen experts, and their conditions on a growing text.

Edits never change weights. They add columns to a ``Routing``: for each edited expert the difference between the edited
and the live activation. A difference of zero therefore leaves the output bit-identical.

A condition has two parts. Its parts that depend on the position give every token its own plan, before the forward pass.
Its gate tests are evaluated inside the forward pass, on the live activations of the same token.

Shapes: B batch rows, R rows with the same layer, T tokens, P tokens of some rows, I input width, O output width,
M edited experts (width of the dense output in ``dense_PM``), K active experts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.config.steering import Condition, Edit, Scope, SteeringMode
from mxd.trainer.inference.results import RoutedExpert
from mxd.trainer.inference.routing import routed_experts
from mxd.trainer.language_model.mlp_hooks import EditedMlp, LayerPass, Mlp
from mxd.trainer.layers.mxd import Routing, SparseLayer


class GateCheck(NamedTuple):
    """A gate test with its level as a gate activation: it holds if (activation > level) equals ``is_above``."""

    expert: int
    level: float
    is_above: bool
    block: int | None = None
    """Block of the expert's layer; None for the edited block."""


@dataclass(eq=False)
class TextProgress:
    """Position of the prompt's end in a text, tokens that edits may change, and stop texts that have been generated."""

    prompt_tokens: int = 0
    stop_texts: frozenset[str] = frozenset()
    scope: Scope = "all"
    positions: frozenset[int] | None = None
    """Prompt positions that edits may change, instead of ``scope``."""
    ended: dict[str, int] = field(default_factory=dict)
    """Stop text -> position of the token that completed it."""

    def is_edited(self, position: int) -> bool:
        """True if edits whose conditions hold apply to this position."""
        is_prompt = position < self.prompt_tokens
        if self.positions is not None:
            return is_prompt and position in self.positions
        return self.scope == "all" or is_prompt == (self.scope == "prompt")

    def note(self, generated: str, position: int) -> None:
        """Record the stop texts that the token at ``position`` has completed in the generated text."""
        for text in self.stop_texts:
            if text not in self.ended and text in generated:
                self.ended[text] = position


def effect_share(condition: Condition | None, progress: TextProgress, position: int) -> float:
    """Share of an edit's full effect at a position, 0 to 1, by all parts of its condition except gate tests."""
    if condition is None:
        return 1.0
    number = position - progress.prompt_tokens + 1  # 1 for the first generated token
    is_outside = condition.scope == ("prompt" if number >= 1 else "generated")
    if is_outside or (condition.first is not None and not 1 <= number <= condition.first):
        return 0.0
    if condition.until is not None and position >= progress.ended.get(condition.until, position + 1):
        return 0.0
    share = 1.0
    if condition.ramp is not None:
        share *= min(max(number, 0) / condition.ramp, 1.0)
    if condition.fade is not None:
        share *= max(1.0 - max(number - 1, 0) / condition.fade, 0.0)
    return share


class AffineChange(NamedTuple):
    """The edited activation as a function of the live activation a: factor * a + shift."""

    factor: float = 1.0
    shift: float = 0.0

    def then(self, edit: Edit, unit: float, share: float = 1.0) -> Self:
        """Compose with a share of the effect of a further edit of the same expert, whose unit is ``unit``."""
        if edit.mode == "add":
            return self._replace(shift=self.shift + share * edit.strength * unit)
        factor = edit.strength if edit.mode == "scale" else 0.0
        shift = edit.strength * unit if edit.mode == "set" else 0.0
        if share != 1.0:
            factor, shift = 1 + share * (factor - 1), share * shift
        return type(self)(self.factor * factor, self.shift * factor + shift)


class Stage(NamedTuple):
    """A change of one activation, made only on tokens where all checks hold."""

    change: AffineChange = AffineChange()
    checks: tuple[GateCheck, ...] = ()


UNCHANGED = Stage()
ALWAYS = GateCheck(0, -math.inf, True)


@dataclass(frozen=True, eq=False)
class EditPlan:
    edits: tuple[Edit, ...]
    units: Mapping[int, float]
    """Expert -> its unit for ``add`` and ``set``."""
    checks: tuple[tuple[GateCheck, ...], ...] = ()
    """Gate tests of each edit; empty if no edit has any."""
    shares: tuple[float, ...] = ()
    """Share of each edit's full effect, 0 to 1; empty for the full effect of all."""
    _at: dict[tuple[float, ...], Self] = field(default_factory=dict, repr=False)
    """Shares -> this plan with these shares. Tokens with the same plan are edited together."""

    def at(self, progress: TextProgress, position: int) -> Self | None:
        if not self.depends_on_position:
            return self if self.edits else None
        shares = tuple(effect_share(edit.when, progress, position) for edit in self.edits)
        if not any(shares):
            return None
        if shares not in self._at:
            self._at[shares] = replace(self, shares=shares, _at={})
        return self._at[shares]

    @cached_property
    def stages(self) -> Mapping[int, tuple[Stage, ...]]:
        """Edited expert -> the changes of its activation, in order; neighbours without checks are composed."""
        stages: dict[int, list[Stage]] = {}
        count = len(self.edits)
        parts = zip(self.edits, self.shares or (1.0,) * count, self.checks or ((),) * count, strict=True)
        for edit, share, checks in parts:
            own, unit = stages.setdefault(edit.expert, []), self.units[edit.expert]
            if share and not checks and own and not own[-1].checks:
                own[-1] = Stage(own[-1].change.then(edit, unit, share))
            elif share:
                own.append(Stage(AffineChange().then(edit, unit, share), checks))
        return {expert: tuple(own) for expert, own in stages.items() if own}

    @cached_property
    def depends_on_position(self) -> bool:
        """True if the effect of an edit differs between positions of a text, apart from gate tests."""
        conditions = [edit.when for edit in self.edits if edit.when is not None]
        return any(condition.model_copy(update={"gates": ()}) != Condition() for condition in conditions)


def edit_routing(
    plans: Sequence[EditPlan], plan_of_T: Tensor, routing: Routing, earlier: Mapping[int, Routing] | None = None
) -> Routing:
    """Difference between edited and live activations, as a routing of M columns.

    Computes all tokens together, whichever row they belong to: in a generation step they are few, and the cost is the
    number of kernels.

    The ``plans`` are distinct, and M is the number of experts of the longest. Their index for each token is
    ``plan_of_T``; ``len(plans)`` for an unedited token. The earlier blocks that gate tests name have the live routing
    ``earlier`` of the same tokens.
    """
    columns = max(len(plan.stages) for plan in plans)
    # Padding: expert 0, unchanged.
    rows = [[*plan.stages.items(), *[(0, ())] * (columns - len(plan.stages))] for plan in plans]
    rows.append([(0, ())] * columns)
    device = routing.indices_TK.device
    ids_TM = torch.tensor([[expert for expert, _ in row] for row in rows], device=device)[plan_of_T]
    live_TM = edited_TM = _activations(routing, ids_TM)
    for depth in range(max(len(stages) for row in rows for _, stages in row)):
        now = [[stages[depth] if depth < len(stages) else UNCHANGED for _, stages in row] for row in rows]
        changes_TM2 = torch.tensor([[stage.change for stage in row] for row in now], device=device)[plan_of_T]
        factor_TM, shift_TM = changes_TM2.unbind(-1)
        changed_TM = edited_TM * factor_TM + shift_TM
        if any(plan.checks for plan in plans):
            holds_TM = _holding(now, plan_of_T, routing, earlier or {})
            changed_TM = torch.where(holds_TM, changed_TM, edited_TM)
        edited_TM = changed_TM
    return Routing(edited_TM - live_TM, ids_TM)


def _holding(
    stages: Sequence[Sequence[Stage]], plan_of_T: Tensor, routing: Routing, earlier: Mapping[int, Routing]
) -> Tensor:
    """[T, M]: whether all checks of each token's stages hold."""
    device = plan_of_T.device
    holds_TM = torch.ones(1, 1, dtype=torch.bool, device=device)
    for number in range(max(len(stage.checks) for row in stages for stage in row)):
        checks = [[stage.checks[number] if number < len(stage.checks) else ALWAYS for stage in row] for row in stages]
        for block in {check.block for row in checks for check in row}:
            # A check of another block counts as held here; its own turn decides it.
            here = [[check if check.block == block else ALWAYS for check in row] for row in checks]
            read = routing if block is None else earlier[block]
            ids_TM = torch.tensor([[check.expert for check in row] for row in here], device=device)[plan_of_T]
            levels_TM = torch.tensor([[check.level for check in row] for row in here], device=device)[plan_of_T]
            is_above_TM = torch.tensor([[check.is_above for check in row] for row in here], device=device)[plan_of_T]
            holds_TM = holds_TM & ((_activations(read, ids_TM) > levels_TM) == is_above_TM)
    return holds_TM


def _activations(routing: Routing, ids_TM: Tensor) -> Tensor:
    """Live activations [T, M] of chosen experts; 0 where inactive."""
    same_TKM = routing.indices_TK.unsqueeze(2) == ids_TM.unsqueeze(1)
    return (routing.activations_TK.unsqueeze(2) * same_TKM).sum(dim=1)


@dataclass(frozen=True, eq=False)
class LayerEdits:
    """A sparse layer in one batch row, with its steering mode and edits."""

    sparse_layer: SparseLayer
    mode: SteeringMode
    plan: EditPlan


class EditedBlock:
    """The MLP function of one block in a forward pass over rows with different edits.

    Each row has its sparse layer, mode and edits, as ``EditedMlp``. Rows with the same layer and mode are routed and
    edited together.
    """

    def __init__(
        self, num_rows: int, blocks: Mapping[int, Self] | None = None, text_of: Sequence[int] | None = None
    ) -> None:
        """``blocks`` are those of the same forward pass; gate tests read the routing of earlier ones. ``text_of`` is
        the index of each batch row's text, if rows of one text have the same input in this block."""
        self._num_rows = num_rows
        self._blocks = {} if blocks is None else blocks  # the caller's: it is empty until the first block is made
        self._text_of = text_of or range(num_rows)
        self._layers: dict[tuple[int, SteeringMode], _LayerRows] = {}

    def add_row(self, row: int, edits: LayerEdits, plans_T: Sequence[EditPlan | None]) -> None:
        """Apply ``edits`` to batch row ``row``; ``plans_T`` has the plan of each token, None for unedited tokens."""
        key = id(edits.sparse_layer), edits.mode
        rows = self._layers.setdefault(key, _LayerRows(edits, self._blocks, self._text_of))
        rows.batch_rows.append(row)
        rows.plans.append(plans_T)

    def __call__(self, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        """Output [B, T, O] of all rows."""
        num_replaced = sum(len(rows.batch_rows) for rows in self._layers.values() if rows.mode == "replace")
        output_BTO = mlp() if num_replaced < self._num_rows else None
        for rows in self._layers.values():
            output_BTO = rows.apply(x_BTI, output_BTO)
        assert output_BTO is not None
        return output_BTO

    def experts_at(self, places: Sequence[tuple[int, int]]) -> list[tuple[RoutedExpert, ...]]:
        """Active experts on some tokens, before edits, strongest first. ``places`` are batch row and position of each
        token in the forward pass; -1 is the last position."""
        positions = dict(places)
        experts: dict[int, tuple[RoutedExpert, ...]] = {}
        for rows in self._layers.values():
            chosen = [index for index, row in enumerate(rows.batch_rows) if row in positions]
            places_R = [positions[rows.batch_rows[index]] for index in chosen]
            is_one = len(set(places_R)) == 1
            tokens: Any = (consecutive(chosen), places_R[0]) if is_one else (chosen, places_R)
            routing = Routing(*(rows.rows(values)[tokens] for values in rows.layer_pass.routing))
            routed = routed_experts(rows.sparse_layer, rows.rows(rows.layer_pass.dense_PM)[tokens], routing)
            experts |= dict(zip([rows.batch_rows[index] for index in chosen], routed, strict=True))
        return [experts[row] for row, _ in places]

    def routing(self, batch_rows: Sequence[int], tokens: int, device: torch.device) -> Routing:
        """Live routing [R * T, K] of some batch rows; rows without a layer in this block have no active experts."""
        routing_of_row = {
            row: Routing(*(rows.rows(values)[index] for values in rows.layer_pass.routing))
            for rows in self._layers.values()
            for index, row in enumerate(rows.batch_rows)
        }
        empty_T0 = torch.zeros(tokens, 0, device=device)
        nothing = Routing(empty_T0, empty_T0.long())
        routings = [routing_of_row.get(row, nothing) for row in batch_rows]
        widest = max(routing.indices_TK.shape[1] for routing in routings)
        columns = zip(*routings, strict=True)
        padded = ([F.pad(part.to(device), (0, widest - part.shape[1])) for part in column] for column in columns)
        return Routing(*map(torch.cat, padded))


class _LayerRows:
    """The batch rows of one sparse layer and steering mode in a forward pass."""

    def __init__(self, edits: LayerEdits, blocks: Mapping[int, EditedBlock], text_of: Sequence[int]) -> None:
        self.sparse_layer, self.mode = edits.sparse_layer, edits.mode
        self._blocks = blocks
        self._text_of = text_of
        self.batch_rows: list[int] = []
        self.plans: list[Sequence[EditPlan | None]] = []

    def apply(self, x_BTI: Tensor, output_BTO: Tensor | None) -> Tensor:
        """Route these rows and write their output into the block's output, which is None if no row needs the MLP."""
        # Rows of one text are computed once.
        first_of_text = {self._text_of[row]: row for row in reversed(self.batch_rows)}
        place = {text: number for number, text in enumerate(first_of_text)}
        at: Any = consecutive([place[self._text_of[row]] for row in self.batch_rows])
        at = torch.tensor(at, device=x_BTI.device) if isinstance(at, list) else at  # copied once
        self.layer_pass = LayerPass(self.sparse_layer, x_BTI[consecutive(list(first_of_text.values()))], at)
        if output_BTO is None:
            output_BTO = x_BTI.new_empty(*x_BTI.shape[:-1], self.sparse_layer.config.output_width)
        rows = consecutive(self.batch_rows)
        edited = EditedMlp(self.sparse_layer, self._added, self.mode)
        output_BTO[rows] = edited.output(self.layer_pass, x_BTI, output_BTO[rows])
        return output_BTO

    def rows(self, values_PX: Tensor, chosen: slice | list[int] = slice(None)) -> Tensor:
        """Values of the pass for some of these rows, [R, T, X]."""
        # Not reshape(-1, ...): the dense output of a transcoder without a skip connection has no entries.
        tokens = self.layer_pass.x_STI.shape[1]
        return values_PX.reshape(len(self.batch_rows), tokens, values_PX.shape[-1])[chosen]

    def _added(self, layer_pass: LayerPass) -> Tensor | None:
        """Addition of the edits to the output of these rows, [P, O], in one matrix product."""
        edited = [index for index, plans_T in enumerate(self.plans) if any(plans_T)]
        if not edited:
            return None
        chosen = consecutive(edited)
        plans = list({id(plan): plan for row in edited for plan in self.plans[row] if plan}.values())
        index = {id(plan): number for number, plan in enumerate(plans)}
        plan_of = [index.get(id(plan), len(plans)) for row in edited for plan in self.plans[row]]
        dense_PM = self.rows(layer_pass.dense_PM, chosen).flatten(0, 1)
        routing = Routing(*(self.rows(values, chosen).flatten(0, 1) for values in layer_pass.routing))
        plan_of_P = torch.tensor(plan_of, device=dense_PM.device)
        checks = (check for plan in plans for checks in plan.checks for check in checks)
        named, tokens = [self.batch_rows[row] for row in edited], layer_pass.x_STI.shape[1]
        earlier = {
            block: self._blocks[block].routing(named, tokens, dense_PM.device)
            for block in {check.block for check in checks if check.block is not None}
        }
        difference = edit_routing(plans, plan_of_P, routing, earlier)
        added_PO = self.sparse_layer.contribution(dense_PM, difference)
        if len(edited) == len(self.batch_rows):
            return added_PO
        added_RTO = added_PO.new_zeros(len(self.batch_rows), layer_pass.x_STI.shape[1], added_PO.shape[1])
        added_RTO[chosen] = added_PO.reshape(len(edited), *added_RTO.shape[1:])
        return added_RTO.flatten(0, 1)


def consecutive(rows: list[int]) -> slice | list[int]:
    """Index of some rows: a slice if they follow each other. A list would be copied to the device, which waits."""
    return slice(rows[0], rows[-1] + 1) if rows and rows == list(range(rows[0], rows[-1] + 1)) else rows
