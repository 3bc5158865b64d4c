"""Rows that share the blocks before the first edit get the same results as separate rows."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Gemma2Config, MistralConfig, PreTrainedConfig

from mxd.trainer.config import Edit, Sampling, SteeringConfig
from mxd.trainer.inference.results import TokenEvent
from mxd.trainer.inference.steering import steer
from mxd.trainer.language_model.kv_cache import variant_tokens
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from tests.helpers.language_models import CONFIGS, OTHER_CACHES, tiny_language_model
from tests.helpers.runs import World, run_of

EDITS = (Edit(expert=3, mode="add", strength=30),)


def test_blocks_before_the_first_edit_compute_each_text_once(world: World) -> None:
    language_model, run = tiny_language_model(), run_of(world)  # of block 1
    rows: list[list[int]] = [[] for _ in language_model.architecture.blocks]
    assert language_model.can_grow_cache and language_model.can_share_prefix(1)  # found out before anybody counts
    for block, seen in zip(language_model.architecture.blocks, rows, strict=True):
        block.input_layernorm.register_forward_pre_hook(partial(count, seen))  # type: ignore[union-attr]
    steps = list(steer(language_model, run, config("the old fox", EDITS, 12, seed=2)))
    assert {step.variant for step in steps if isinstance(step, TokenEvent)} == {"baseline", "steered"}
    # The first block is given the prompt once, then each text; the others each text without and with edits.
    assert rows[0][0] == 1 and rows[0][-1] == 2
    assert [2 * texts for texts in rows[0]] == rows[1] == rows[2]


def count(seen: list[int], _module: Any, hidden: tuple[Tensor, ...]) -> None:
    seen.append(len(hidden[0]))


def config(prompt: str, edits: tuple[Edit, ...], tokens: int, seed: int = 0) -> SteeringConfig:
    return SteeringConfig(prompt=prompt, edits=edits, sampling=Sampling(max_tokens=tokens, temperature=1.0, seed=seed))


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
