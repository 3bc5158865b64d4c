"""Every gate matches a flat gate with equivalent rows: forward, backward, after initialisation and after loading."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.config.gates import GateConfig, GateForm, gate_groups, resolve_gate
from mxd.trainer.errors import UserError
from mxd.trainer.layers.gates import Gate, build_gate
from mxd.trainer.layers.gates import blocked_topk as blocks
from mxd.trainer.layers.registry import build_layer, load_layer
from tests.helpers.layers import random_layer

WIDTH = 7
FORMS: tuple[GateForm, ...] = ("flat", "product-key", "two-level")


def random_gate(form: GateForm, num_experts: int, k: int, seed: int = 0, groups: int | None = None) -> Gate:
    """Gate with random float64 parameters; all groups are top groups."""
    config = resolve_gate(GateConfig.model_validate({"gate": form, "groups": groups}), num_experts, k)
    if config.groups is not None:
        config = config.model_copy(update={"top_groups": config.groups})
    gate = build_gate(config, WIDTH, num_experts, k).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in gate.parameters():
        parameter.data.normal_(generator=generator)
    return gate


def rows_of_all(gate: Gate, kind: str) -> Tensor:
    """Weights or biases of every expert, with gradients, from the definition of each gate."""
    named, number = dict(gate.named_parameters()), torch.arange(gate.num_experts)
    if "first.bias" in named:
        size = len(named["second.bias"])
        return named[f"first.{kind}"][number // size] + named[f"second.{kind}"][number % size]
    if "groups.bias" in named:
        size = -(-gate.num_experts // len(named["groups.bias"]))
        return named[f"groups.{kind}"][number // size] + named[f"own.{kind}"]
    return named[kind]


def dense(gate: Gate, x_TI: Tensor, k: int) -> Tensor:
    """Gate activations of all experts, [T, N], from all N scores."""
    scores_TN = F.relu(x_TI @ rows_of_all(gate, "weight").T + rows_of_all(gate, "bias"))
    top = scores_TN.topk(k, dim=1)
    return torch.zeros_like(scores_TN).scatter(1, top.indices, top.values)


@pytest.mark.parametrize("way", ["by block", "gathered"])
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 30),
    num_experts=st.integers(1, 61),
    k=st.integers(1, 12),
    groups=st.integers(1, 12),
    seed=st.integers(0, 10_000),
)
def test_selection_and_gradients_match_dense_scores(
    form: GateForm, way: str, tokens: int, num_experts: int, k: int, groups: int, seed: int
) -> None:
    k = min(k, num_experts)
    grouped = min(groups, num_experts) if form == "two-level" else None
    gate = random_gate(form, num_experts, k, seed, grouped)
    x_TI = torch.randn(tokens, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    x_TI.requires_grad_()
    upstream_TN = torch.randn(tokens, num_experts, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    inputs = [x_TI, *gate.parameters()]
    with pytest.MonkeyPatch.context() as patch:
        if way == "gathered":
            patch.setattr(blocks, "_by_block", blocks._by_gather)
            patch.setattr(blocks, "MAX_GATHERED", 1 + seed % 5000)
        coefficients_TK, ids_TK = gate.choose(x_TI, k)
    assert bool((coefficients_TK.diff(dim=1) <= 0).all())
    expected_TN = dense(gate, x_TI, k)
    actual_TN = torch.zeros_like(expected_TN).scatter_add(1, ids_TK, coefficients_TK)
    torch.testing.assert_close(actual_TN, expected_TN, rtol=1e-9, atol=1e-9)
    actual, expected = (
        torch.autograd.grad((values_TN * upstream_TN).sum(), inputs) for values_TN in (actual_TN, expected_TN)
    )
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_those_of_an_equivalent_flat_gate(form: GateForm) -> None:
    gate = random_gate(form, 23, 4)
    torch.testing.assert_close(gate.rows(slice(None)), rows_of_all(gate, "weight").detach())
    torch.testing.assert_close(gate.rows(torch.tensor([5, 22])), gate.rows(slice(None))[[5, 22]])
    assert not gate.rows(slice(3, 9)).requires_grad


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_experts", [1, 12, 23, 64])
def test_initialization_uses_every_direction_and_the_mean_scores_zero(form: GateForm, num_experts: int) -> None:
    generator = torch.Generator().manual_seed(0)
    directions_NI = F.normalize(torch.randn(num_experts, WIDTH, dtype=torch.float64, generator=generator), dim=1)
    mean_I = torch.randn(WIDTH, dtype=torch.float64, generator=generator)
    gate = random_gate(form, num_experts, 1)
    order_N = gate.initialize(directions_NI, mean_I)
    assert sorted(order_N.tolist()) == list(range(num_experts))
    coefficients_TK, _ = gate.choose(mean_I.unsqueeze(0), 1)
    assert coefficients_TK.abs().max() < 1e-9
    cosines_N = F.cosine_similarity(gate.rows(slice(None)), directions_NI[order_N])
    assert cosines_N.min() > 1 - 1e-9 if form != "product-key" else cosines_N.mean() > 0.3


@pytest.mark.parametrize("form", FORMS)
def test_identical_inputs_get_identical_results_up_to_rounding(form: GateForm) -> None:
    gate = random_gate(form, 61, 6, groups=9 if form == "two-level" else None).float()
    x_TI = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(0)).repeat(3, 1)
    with torch.no_grad():
        coefficients_TK, ids_TK = gate.choose(x_TI, 6)
    for part in (slice(5, 10), slice(10, 15)):
        # A matrix product may round the last rows of a block in another way, which depends on the processor.
        torch.testing.assert_close(coefficients_TK[part], coefficients_TK[:5])
        assert torch.equal(ids_TK[part], ids_TK[:5])


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_survives_saving_and_loading(form: GateForm, tmp_path: Path) -> None:
    layer = random_layer(gate=GateConfig(gate=form))
    layer.save(tmp_path)
    again = load_layer(tmp_path)
    x_TI = torch.randn(3, 12)
    torch.testing.assert_close(again(x_TI).output_TO, layer(x_TI).output_TO)
    assert again.config.gate == layer.config.gate
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in layer.state_dict().items())


def test_a_method_without_top_k_needs_a_flat_gate() -> None:
    config = random_layer().config.model_dump() | {"method": "relu-mxd", "k": 33, "gate": {"gate": "product-key"}}
    with pytest.raises(UserError, match="Gate not supported by relu-mxd: product-key"):
        build_layer(random_layer().config.model_validate(config))


def test_missing_experts_of_the_top_groups_are_inactive() -> None:
    """Random-K may ask for more experts than the top groups hold; the missing ones have gate activation 0."""
    config = resolve_gate(GateConfig(gate="two-level", groups=5, top_groups=2), 20, 4)
    gate = build_gate(config, WIDTH, 20, 4)
    for name, parameter in gate.named_parameters():
        if name.endswith("bias"):
            parameter.data.fill_(10.0)
    coefficients_TK, ids_TK = gate.choose(torch.randn(6, WIDTH), 12)
    assert gate_groups(config, 20).size == 4
    assert ((coefficients_TK > 0).sum(dim=1) == 8).all()
    assert ids_TK.max() < 20
