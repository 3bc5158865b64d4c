"""A product turned round is the same product."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainer import few_rows


@pytest.mark.parametrize("rows", [1, 2, 5, 48, 49])
@pytest.mark.parametrize("bias", [True, False])
def test_turned_modules_answer_alike(rows: int, bias: bool) -> None:
    plain = nn.Linear(12, 7, bias=bias)
    turned = nn.Sequential(nn.Linear(12, 7, bias=bias))
    turned[0].load_state_dict(plain.state_dict())
    few_rows.turn(turned)
    x_1RI = torch.randn(1, rows, 12)
    with torch.inference_mode():
        found = turned(x_1RI)
        torch.testing.assert_close(found, plain(x_1RI))
    assert found.is_contiguous()
    assert turned.state_dict().keys() == {f"0.{name}" for name in plain.state_dict()}


@pytest.mark.parametrize("rows", [2, 3, 5, 6, 10, 30, 47, 61, 130])
def test_rows_that_are_alike_get_the_same_answer_to_the_bit(rows: int) -> None:
    linear = nn.Sequential(nn.Linear(32, 50))
    few_rows.turn(linear)
    with torch.inference_mode():
        found = linear(torch.randn(1, 32).expand(rows, -1))
    assert torch.equal(found, found[:1].expand(rows, -1))


def test_where_a_gradient_is_wanted_nothing_is_turned() -> None:
    linear = nn.Sequential(nn.Linear(4, 3))
    few_rows.turn(linear)
    linear(torch.randn(2, 4)).sum().backward()
    assert linear[0].weight.grad is not None
    assert not few_rows.turns(torch.randn(2, 4))


def test_other_kinds_of_linear_modules_keep_their_own_forward() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    module = nn.Sequential(Doubled(4, 3))
    few_rows.turn(module)
    assert type(module[0]) is Doubled
