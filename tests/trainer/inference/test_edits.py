"""Edits to the gate: each mode, and bit-identical outputs without edits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.config import Edit, Method, SteeringMode
from mxd.trainer.inference.edits import EditedBlock, EditPlan, LayerEdits, edit_routing
from mxd.trainer.inference.routing import routed_experts
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.layers.registry import build_layer
from tests.helpers.layers import random_layer

X_BTI = torch.randn(2, 3, 12, generator=torch.Generator().manual_seed(0))


def plan(*edits: Edit, units: dict[int, float] | None = None) -> EditPlan:
    return EditPlan.from_edits(edits, dict.fromkeys((edit.expert for edit in edits), 1.0) | (units or {}), 33)


def added(edits: EditPlan, routing: Routing) -> torch.Tensor:
    """Change of the activation of the plan's only expert, per token."""
    actual = edit_routing([edits], torch.zeros(len(routing.indices_TK), dtype=torch.int64), routing)
    return actual.activations_TK[:, 0]


def live(routing: Routing, expert: int) -> torch.Tensor:
    return (routing.activations_TK * (routing.indices_TK == expert)).sum(dim=1)


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (Edit(expert=4, mode="scale", strength=3), lambda a: 3 * a),
        (Edit(expert=4, mode="add", strength=2), lambda a: a + 2 * 0.5),
        (Edit(expert=4, mode="add", strength=-1), lambda a: a - 0.5),
        (Edit(expert=4, mode="set", strength=2), lambda a: torch.full_like(a, 1.0)),
        (Edit(expert=4, mode="ablate"), torch.zeros_like),
    ],
)
def test_each_mode(edit: Edit, wanted: object) -> None:
    layer = random_layer()
    routing = layer.route(X_BTI.reshape(-1, 12))
    before = live(routing, 4)
    after = before + added(plan(edit, units={4: 0.5}), routing)
    torch.testing.assert_close(after, wanted(before))  # type: ignore[operator]


def test_edits_of_one_expert_are_composed_in_order() -> None:
    routing = Routing(torch.tensor([[2.0, 1.0]]), torch.tensor([[7, 4]]))
    edits = (Edit(expert=4, mode="add", strength=1), Edit(expert=4, mode="scale", strength=10))
    assert added(plan(*edits), routing).item() == pytest.approx(20 - 1)


def test_every_token_is_edited_by_its_own_plan() -> None:
    routing = Routing(torch.tensor([[2.0, 1.0]] * 3), torch.tensor([[7, 4]] * 3))
    short, long = (
        plan(Edit(expert=4, mode="ablate")),
        plan(Edit(expert=7, mode="add"), Edit(expert=0, mode="set", strength=3)),
    )
    actual = edit_routing([short, long], torch.tensor([1, 2, 0]), routing)
    assert actual.activations_TK.tolist() == [[1, 3], [0, 0], [-1, 0]]
    assert actual.indices_TK[0].tolist() == [7, 0]
    assert actual.indices_TK[2, 0] == 4


def block(layer: SparseLayer, mode: SteeringMode, edits: tuple[Edit, ...], touched_BT: list[list[bool]]) -> EditedBlock:
    """A block whose rows have the same layer and plan."""
    made = EditedBlock(len(touched_BT))
    both = LayerEdits(layer, mode, plan(*edits))
    for index, touched in enumerate(touched_BT):
        made.add_row(index, both, [both.plan if edits and is_touched else None for is_touched in touched])
    return made


@pytest.mark.parametrize("mode", ["residual", "replace"])
@pytest.mark.parametrize("edits", [(), (Edit(expert=3, mode="scale", strength=1),)])
def test_edits_without_effect_are_bit_identical(mode: SteeringMode, edits: tuple[Edit, ...]) -> None:
    layer = random_layer(widths=(12, 20, 12))
    output = block(layer, mode, edits, [[True] * 3] * 2)(X_BTI, lambda: X_BTI.sin())
    wanted = X_BTI.sin() if mode == "residual" else layer(X_BTI.reshape(-1, 12)).output_TO.reshape(2, 3, 12)
    assert torch.equal(output, wanted)


@given(st.sampled_from(["residual", "replace"]), st.floats(-5, 5), st.integers(0, 32))
def test_only_edited_tokens_change_by_the_experts_contribution(
    mode: SteeringMode, strength: float, expert: int
) -> None:
    layer = random_layer(widths=(12, 20, 12))
    assert isinstance(layer, MxD)
    touched_BT = [[True, False, True], [False, False, True]]
    edits = (Edit(expert=expert, mode="add", strength=strength),)
    edited, original = (block(layer, mode, chosen, touched_BT)(X_BTI, lambda: X_BTI.clone()) for chosen in (edits, ()))
    own = strength * (layer.encode(X_BTI) @ layer.expert_matrix(expert))
    wanted = own * torch.tensor(touched_BT).unsqueeze(2)
    torch.testing.assert_close(edited - original, wanted, rtol=1e-3, atol=1e-4)


def test_rows_with_different_layers_and_plans_are_independent() -> None:
    one, other = random_layer(widths=(12, 20, 12)), random_layer(widths=(12, 20, 12), seed=1)
    x_BTI = torch.randn(4, 2, 12)
    edits = (
        LayerEdits(one, "replace", plan()),
        LayerEdits(other, "replace", plan(Edit(expert=2, mode="add", strength=3))),
        LayerEdits(one, "residual", plan(Edit(expert=5, mode="set", strength=2))),
    )
    together = EditedBlock(4)
    for index, each in enumerate(edits):
        together.add_row(index, each, [each.plan if each.plan.edits else None] * 2)
    output = together(x_BTI, lambda: x_BTI.cos())
    for index, each in enumerate(edits):
        alone = EditedBlock(1)
        alone.add_row(0, each, [each.plan if each.plan.edits else None] * 2)
        torch.testing.assert_close(
            output[index], alone(x_BTI[index : index + 1], lambda: x_BTI[2:3].cos())[0], atol=1e-4, rtol=1e-4
        )
    assert torch.equal(output[3], x_BTI[3].cos())
    x_RI = x_BTI[[2, 0], -1]
    actual = together.experts_at([(2, -1), (0, -1)])
    for experts, expected in zip(actual, routed_experts(one, one.dense_output(x_RI), one.route(x_RI)), strict=True):
        assert [it.expert for it in experts] == [it.expert for it in expected]
        assert [it.share for it in experts] == pytest.approx([it.share for it in expected])


@pytest.mark.parametrize("method", ["transcoder", "jumprelu-transcoder"])
def test_layers_without_a_dense_output_can_be_edited(method: Method) -> None:
    config = random_layer().config
    layer = build_layer(config.model_copy(update={"method": method, "k": 33 if method.startswith("jump") else 5}))
    torch.nn.init.normal_(layer.table)
    output_BTO = torch.zeros(2, 3, 10)
    edited = block(layer, "residual", (Edit(expert=4, mode="set", strength=2),), [[True] * 3] * 2)
    actual = edited(X_BTI, lambda: output_BTO.clone())
    live_T = live(layer.route(X_BTI.reshape(-1, 12)), 4)
    wanted_TO = (2 - live_T).unsqueeze(1) * layer.table[4]
    torch.testing.assert_close(actual.reshape(-1, 10), wanted_TO)
