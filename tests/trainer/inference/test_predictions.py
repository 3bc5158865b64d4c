"""Predictions with and without a sparse layer, against plain forward passes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mxd.trainer.inference.routing import predict, top_ids
from mxd.trainer.language_model.tokenizer import prompt_ids
from tests.helpers.language_models import tiny_language_model
from tests.helpers.runs import World, run_of

TEXT = "the old fox sang, café ☕"


@pytest.mark.parametrize("family", ["llama", "opt", "gpt-neox", "falcon"])
def test_predictions_equal_two_forward_passes(world: World, family: str) -> None:
    language_model, run = tiny_language_model(family), run_of(world, "one", 1)
    actual = predict(language_model, run, TEXT)
    ids = torch.tensor([prompt_ids(language_model, TEXT)])
    original = language_model.logits(ids)[0].log_softmax(-1)
    with language_model.replace({1: run.layer}):
        replaced = language_model.logits(ids)[0].log_softmax(-1)
    with language_model.replace_mlps({1: lambda _x, mlp: torch.zeros_like(mlp())}):
        zeroed = language_model.logits(ids)[0].log_softmax(-1)
    kl_T = _kl(original, replaced)
    assert kl_T.max() > 1e-3
    assert [token.kl for token in actual.tokens] == pytest.approx(kl_T.tolist(), rel=1e-3, abs=1e-6)
    zeroed_kl = [token.zeroed_kl for token in actual.tokens]
    assert zeroed_kl == pytest.approx(_kl(original, zeroed).tolist(), rel=1e-3, abs=1e-6)
    for index, token in enumerate(actual.tokens):
        assert token.predictions[0].original == pytest.approx(original[index].max().exp().item(), rel=1e-5)
        for prediction in token.predictions:
            assert prediction.original == pytest.approx(original[index, prediction.id].exp().item(), rel=1e-3)
            assert prediction.replaced == pytest.approx(replaced[index, prediction.id].exp().item(), rel=1e-3)


def test_layers_are_replaced_together(world: World) -> None:
    language_model, runs = tiny_language_model("llama"), [run_of(world, "one", 1), run_of(world, "zero", 0)]
    actual = predict(language_model, runs[0], TEXT, others=runs[1:])
    ids = torch.tensor([prompt_ids(language_model, TEXT)])
    original = language_model.logits(ids)[0].log_softmax(-1)
    with language_model.replace({run.config.layer: run.layer for run in runs}):
        replaced = language_model.logits(ids)[0].log_softmax(-1)
    assert [token.kl for token in actual.tokens] == pytest.approx(_kl(original, replaced).tolist(), rel=1e-3, abs=1e-6)


def _kl(original: Tensor, other: Tensor) -> Tensor:
    return (original.exp() * (original - other)).sum(-1)


@pytest.mark.parametrize("width", [5, 64, 500, 700])
def test_top_ids_equal_topk(width: int) -> None:
    values_TV = torch.randn(9, width)
    assert torch.equal(top_ids(values_TV, 6), values_TV.topk(min(6, width), dim=1).indices)
