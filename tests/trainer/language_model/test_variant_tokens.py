"""A variant of a token gets the residual stream of a text that ends with the changed token."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import Gemma2Config, MistralConfig, PreTrainedConfig

from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.variant_tokens import variant_tokens
from tests.helpers.language_models import CONFIGS, OTHER_CACHES, tiny_language_model

IDS = [5, 6, 7, 8, 9, 3, 2, 1, 4, 6, 2, 8]
POSITIONS = [0, 3, 3, 7, 11, 9]
ADDED = torch.randn(len(POSITIONS), 16, generator=torch.Generator().manual_seed(1))


def assert_equal_to_shorter_texts(language_model: LanguageModel, layer: int) -> None:
    def at_variants(_x: Tensor, mlp: Mlp) -> Tensor:
        output_1SO = mlp().clone()
        output_1SO[0, len(IDS) :] += ADDED
        return output_1SO

    text, original_TW = torch.tensor([IDS]), language_model.residual(torch.tensor([IDS]))[0]
    with (
        variant_tokens(language_model.architecture.blocks, layer, torch.tensor(POSITIONS)) as residuals,
        language_model.replace_mlps({layer: at_variants}),
    ):
        torch.testing.assert_close(language_model.residual(text)[0], original_TW)
    for position, added_O, actual_W in zip(POSITIONS, ADDED, residuals[0], strict=True):

        def at_the_end(_x: Tensor, mlp: Mlp, added_O: Tensor = added_O) -> Tensor:
            output_1TO = mlp().clone()
            output_1TO[0, -1] += added_O
            return output_1TO

        with language_model.replace_mlps({layer: at_the_end}):
            expected_W = language_model.residual(torch.tensor([IDS[: position + 1]]))[0, -1]
        torch.testing.assert_close(actual_W, expected_W, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("layer", [0, 2])
def test_a_variant_is_computed_as_if_the_text_ended_with_it(family: str, layer: int) -> None:
    language_model = tiny_language_model(family)
    assert language_model.can_append_variants(layer)
    assert_equal_to_shorter_texts(language_model, layer)


@pytest.mark.parametrize("config", [MistralConfig, Gemma2Config])
def test_a_sliding_window_is_that_of_the_token(config: type[PreTrainedConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    short = config(**{**CONFIGS["mistral"].to_dict(), "sliding_window": 3, "model_type": config.model_type})
    monkeypatch.setitem(CONFIGS, "short-window", short)
    language_model = tiny_language_model("short-window")
    assert language_model.can_append_variants(1)
    assert_equal_to_shorter_texts(language_model, 1)


@pytest.mark.parametrize("family", OTHER_CACHES)
def test_blocks_that_mix_tokens_otherwise_are_detected_or_exact(family: str) -> None:
    """Convolutions and states read the tokens before a variant, which are other variants."""
    language_model = tiny_language_model(family)
    for layer in range(len(language_model.architecture.blocks)):
        if language_model.can_append_variants(layer):
            assert_equal_to_shorter_texts(language_model, layer)
