"""Frozen attention equals PyTorch's attention with a constant pattern, in blocks and in batched backward passes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mxd.trainer.analysis.circuits import attention
from mxd.trainer.analysis.circuits.attention import AttentionCall, frozen_attention

TOKENS, HEADS, WIDTH = 7, 4, 3


def random_call(kind: str) -> AttentionCall:
    generator = torch.Generator().manual_seed(3)
    query_BHTD = torch.randn(1, HEADS, TOKENS, WIDTH, generator=generator)
    key_BJTD = torch.randn(1, 2, TOKENS, WIDTH, generator=generator)
    visible_TT = torch.ones(TOKENS, TOKENS).tril().bool()
    masks: dict[str, Tensor | None] = {
        "causal": None,
        "boolean": visible_TT[None, None],
        "added": torch.where(visible_TT, torch.randn(HEADS, TOKENS, TOKENS, generator=generator), -torch.inf)[None],
    }
    return AttentionCall(query_BHTD, key_BJTD, masks[kind], kind == "causal", 0.4)


@pytest.fixture(autouse=True, params=[1 << 20, 50], ids=["one block", "blocks"])
def block_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "SCORES_AT_A_TIME", request.param)


@pytest.mark.parametrize("kind", ["causal", "boolean", "added"])
def test_output_and_gradients_equal_those_of_the_pattern(kind: str) -> None:
    call = random_call(kind)
    pattern_BHTT = torch.zeros(1, HEADS, TOKENS, TOKENS)
    for first, block_BHQT in call.blocks():
        pattern_BHTT[:, :, first : first + block_BHQT.shape[2], : block_BHQT.shape[3]] = block_BHQT
    value_BJTD = torch.randn(1, 2, TOKENS, WIDTH, requires_grad=True)
    output_BHTD = frozen_attention(value_BJTD, call)
    expected_BHTD = pattern_BHTT @ value_BJTD.repeat_interleave(2, dim=1)
    torch.testing.assert_close(output_BHTD, expected_BHTD)
    seeds_RBHTD = torch.randn(5, *output_BHTD.shape)

    def gradient(output: Tensor, seed: Tensor) -> Tensor:
        return torch.autograd.grad(output, value_BJTD, seed, retain_graph=True)[0]

    expected = torch.stack([gradient(expected_BHTD, seed) for seed in seeds_RBHTD])
    torch.testing.assert_close(gradient(output_BHTD, seeds_RBHTD[0]), expected[0])
    batched = torch.vmap(lambda seed: gradient(output_BHTD, seed))(seeds_RBHTD)
    torch.testing.assert_close(batched, expected)


def test_the_gradient_of_the_gradient_is_the_output() -> None:
    value_BJTD = torch.randn(1, 2, TOKENS, WIDTH, requires_grad=True)
    output_BHTD = frozen_attention(value_BJTD, random_call("causal"))
    seed_BHTD = torch.zeros_like(output_BHTD, requires_grad=True)
    (gradient,) = torch.autograd.grad(output_BHTD, value_BJTD, seed_BHTD, create_graph=True)
    (tangent_BHTD,) = torch.autograd.grad((gradient * value_BJTD.detach()).sum(), seed_BHTD)
    torch.testing.assert_close(tangent_BHTD, output_BHTD)
