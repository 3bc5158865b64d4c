"""Cells over a flat gate: with all of them probed it is the flat gate, and what is found is counted right."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.gate_config import GateConfig
from trainer.layers.gates.cells import CellsGate, cells_of, found_by_probes
from trainer.layers.gates.flat import FlatGate

WIDTH, K = 6, 3


def fitted(num_experts: int, seed: int = 0) -> tuple[FlatGate, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    gate = FlatGate(WIDTH, num_experts)
    for parameter in gate.parameters():
        parameter.data.normal_(generator=generator)
    return gate, torch.randn(50, WIDTH, generator=generator)


def probing(cells: CellsGate, count: int) -> CellsGate:
    cells.sizes = cells.sizes._replace(chosen=count)
    return cells


@settings(max_examples=40, deadline=None)
@given(num_experts=st.integers(K, 70), cells=st.integers(1, 12), seed=st.integers(0, 1000))
def test_with_all_cells_probed_it_is_the_flat_gate(num_experts: int, cells: int, seed: int) -> None:
    gate, x_TI = fitted(num_experts, seed)
    made = cells_of(gate, x_TI, GateConfig(gate="cells", groups=min(cells, num_experts)), K)
    with torch.no_grad():
        wanted, found = gate.choose(x_TI, K), probing(made, made.sizes.number).choose(x_TI, K)
    torch.testing.assert_close(found[0], wanted[0])
    active = wanted[0] > 1e-5
    assert torch.equal(found[1][active], wanted[1][active])
    torch.testing.assert_close(made.rows(slice(None)), gate.rows(slice(None)))


def test_what_is_found_is_what_is_chosen_too() -> None:
    gate, x_TI = fitted(64)
    cells = cells_of(gate, x_TI, GateConfig(gate="cells", groups=8), K)
    found = found_by_probes(cells, gate, x_TI, K)
    with torch.no_grad():
        wanted, ids = gate.choose(x_TI, K)
        for probed in (1, 3, 8):
            coefficients, chosen = probing(cells, probed).choose(x_TI, K)
            pairs = (ids.unsqueeze(2) == chosen.unsqueeze(1)) & (coefficients.unsqueeze(1) > 0)
            hit = pairs.any(dim=2) & (wanted > 0)
            assert found.chosen_G[probed - 1].item() == pytest.approx(float(hit.sum() / (wanted > 0).sum()))
            assert found.mass_G[probed - 1].item() == pytest.approx(float(wanted[hit].sum() / wanted.sum()))


def test_more_probes_find_more_and_the_fewest_that_suffice_are_taken() -> None:
    gate, x_TI = fitted(64)
    cells = cells_of(gate, x_TI, GateConfig(gate="cells", groups=8), K)
    found = found_by_probes(cells, gate, x_TI, K)
    assert bool((found.chosen_G.diff() >= 0).all())
    assert found.chosen_G[-1] == 1
    needed = found.probes_for(0.9)
    assert found.chosen_G[needed - 1] >= 0.9
    assert needed == 1 or found.chosen_G[needed - 2] < 0.9
    assert found.probes_for(1.0) <= 8


def test_alike_experts_are_found_with_few_probes() -> None:
    """Experts around centres: two cells in sixteen hold nearly all that a token near a centre wants."""
    generator = torch.Generator().manual_seed(0)
    centres_GI = torch.randn(16, 24, generator=generator)
    gate = FlatGate(24, 256)
    gate.weight.data = (centres_GI.unsqueeze(1) + 0.2 * torch.randn(16, 16, 24, generator=generator)).flatten(0, 1)
    x_TI = centres_GI[torch.randint(16, (200,), generator=generator)] + 0.2 * torch.randn(200, 24, generator=generator)
    cells = cells_of(gate, x_TI, GateConfig(gate="cells", groups=16), 4)
    assert found_by_probes(cells, gate, x_TI, 4).chosen_G[1] > 0.95
