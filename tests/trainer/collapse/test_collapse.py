"""What is done against collapse does what its words say, and nothing where it is off."""

from __future__ import annotations

import pytest
import torch

from tests.layers import flat_gate, random_layer
from tests.runs import World
from trainer.collapse import penalties
from trainer.collapse.penalties import imbalance, penalty, sameness
from trainer.collapse.random_k import drawn_k
from trainer.collapse.revival import revive
from trainer.config import CollapseConfig
from trainer.layers.sparse import Routing
from trainer.run import Run
from trainer.train import train


def routing_of(indices: list[list[int]]) -> Routing:
    indices_TK = torch.tensor(indices)
    return Routing(torch.ones(indices_TK.shape), indices_TK)


def test_imbalance_is_one_where_all_are_used_alike_and_n_where_one_does_everything() -> None:
    assert imbalance(routing_of([[0, 1], [2, 3]]), 4) == pytest.approx(1)
    assert imbalance(routing_of([[2], [2]]), 4) == pytest.approx(4)


def test_sameness_is_the_mean_squared_cosine_of_different_experts() -> None:
    table_NO = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [9.0, 9.0]])
    assert sameness(routing_of([[0, 1]]), table_NO) == pytest.approx(1)
    assert sameness(routing_of([[0, 2]]), table_NO) == pytest.approx(0)
    assert sameness(routing_of([[0, 1], [2, 2]]), table_NO) == pytest.approx(1 / 3)


@pytest.mark.parametrize("tokens", [1, 5, 200])
def test_sameness_compares_experts_evenly_over_those_of_the_batch(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penalties, "COMPARED", 8)
    generator = torch.Generator().manual_seed(tokens)
    table_NO, indices_TK = torch.randn(60, 7, generator=generator), torch.randint(60, (tokens, 3), generator=generator)
    used = indices_TK.unique()
    used = used[:: max(1, len(used) // 8)][:8]
    cosines_NN = torch.nn.functional.cosine_similarity(table_NO[used].unsqueeze(0), table_NO[used].unsqueeze(1), dim=2)
    others_NN = cosines_NN.square() * (1 - torch.eye(len(used)))
    expected = others_NN.sum() / max(1, len(used) * (len(used) - 1))
    assert sameness(routing_of(indices_TK.tolist()), table_NO) == pytest.approx(expected.item(), abs=1e-6)


def test_penalties_reach_the_gate_and_the_table_and_cost_nothing_when_off() -> None:
    layer = random_layer()
    routing = layer.route(torch.randn(64, 12, generator=torch.Generator().manual_seed(0)))
    assert penalty(CollapseConfig(), routing, layer) is None
    both = penalty(CollapseConfig(balance=1.0, diversity=1.0), routing, layer)
    assert both is not None
    both.backward()
    gate_gradient = layer.get_parameter("gate.weight").grad
    assert gate_gradient is not None and gate_gradient.any()
    assert layer.table.grad is not None and layer.table.grad.any()


def test_random_k_is_drawn_around_k_and_is_the_same_when_a_step_is_taken_again(world: World) -> None:
    config = world.config(collapse=CollapseConfig(k_spread=0.5))
    drawn = [drawn_k(config, 4, step) for step in range(400)]
    assert set(drawn) == {2, 3, 4, 5, 6}
    assert drawn == [drawn_k(config, 4, step) for step in range(400)]
    layer = random_layer(num_experts=40, k=4)
    x_TI = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
    assert layer(x_TI, drawn[0]).routing.indices_TK.shape == (8, drawn[0])
    assert {drawn_k(world.config(), 4, step) for step in range(50)} == {4}


def test_a_revived_expert_is_active_on_its_token_and_lessens_its_error() -> None:
    layer = random_layer(num_experts=33, k=5)
    x_TI = torch.randn(64, 12, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        flat_gate(layer).bias[:4] = -100.0
    target_TO = torch.randn(64, 10, generator=torch.Generator().manual_seed(2))
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.0)
    output = layer(x_TI)
    (output.output_TO - target_TO).square().mean().backward()
    optimizer.step()
    before = flat_gate(layer).weight.detach().clone()
    dead_N = torch.arange(33) < 4
    revive(layer, optimizer, dead_N, x_TI, output, target_TO)
    revived = layer(x_TI).routing
    assert {0, 1, 2, 3} <= set(revived.indices_TK[revived.coefficients_TK > 0].tolist())
    assert torch.equal(flat_gate(layer).weight[4:], before[4:])
    assert not optimizer.state[flat_gate(layer).weight]["exp_avg"][:4].any()


def test_fitting_with_everything_on_goes_on_bit_for_bit_after_a_stop(world: World) -> None:
    collapse = CollapseConfig(k_spread=0.5, balance=0.01, diversity=0.01, revive_after=256)
    config = world.config(collapse=collapse)
    train(config, world.data, world.store, world.language_model)
    whole = Run.load("small", world.data).layer.state_dict()
    again = world.config("again", collapse=collapse)
    asked = iter([False] * 9 + [True])
    train(again, world.data, world.store, world.language_model, should_stop=lambda: next(asked))
    train(again, world.data, world.store, world.language_model, resume="if-any")
    assert all(
        torch.equal(value, whole[name]) for name, value in Run.load("again", world.data).layer.state_dict().items()
    )
