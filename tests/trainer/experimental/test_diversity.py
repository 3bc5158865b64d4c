"""Diversity penalty."""

from __future__ import annotations

import pytest
import torch

from mxd.trainer.experimental import diversity
from mxd.trainer.experimental.diversity import output_similarity
from mxd.trainer.layers.base import Routing


def routing_to(indices: list[list[int]]) -> Routing:
    indices_TK = torch.tensor(indices)
    return Routing(torch.ones(indices_TK.shape), indices_TK)


def test_the_penalty_is_the_mean_squared_cosine_of_different_experts() -> None:
    table_NO = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [9.0, 9.0]])
    assert output_similarity(routing_to([[0, 1]]), table_NO) == pytest.approx(1)
    assert output_similarity(routing_to([[0, 2]]), table_NO) == pytest.approx(0)
    assert output_similarity(routing_to([[0, 1], [2, 2]]), table_NO) == pytest.approx(1 / 3)


@pytest.mark.parametrize("tokens", [1, 5, 200])
def test_the_penalty_compares_evenly_spaced_experts_of_the_batch(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diversity, "MAX_COMPARED", 8)
    generator = torch.Generator().manual_seed(tokens)
    table_NO, indices_TK = torch.randn(60, 7, generator=generator), torch.randint(60, (tokens, 3), generator=generator)
    used = indices_TK.unique()
    used = used[:: max(1, len(used) // 8)][:8]
    cosines_NN = torch.nn.functional.cosine_similarity(table_NO[used].unsqueeze(0), table_NO[used].unsqueeze(1), dim=2)
    others_NN = cosines_NN.square() * (1 - torch.eye(len(used)))
    expected = others_NN.sum() / max(1, len(used) * (len(used) - 1))
    assert output_similarity(routing_to(indices_TK.tolist()), table_NO) == pytest.approx(expected.item(), abs=1e-6)
