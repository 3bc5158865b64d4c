"""MLPs, tokens and positions of many architectures: every check is exact, or refused with a sentence."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BioGptConfig,
    BloomConfig,
    DeepseekV3Config,
    Dots1Config,
    Ernie4_5_MoeConfig,
    Gemma3Config,
    Gemma4TextConfig,
    Glm4MoeConfig,
    GPT2Config,
    GPTJConfig,
    LlamaConfig,
    OPTConfig,
    PreTrainedConfig,
    SiglipVisionConfig,
)

from mxd.trainer.errors import UsageWarning, UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.model import LanguageModel
from tests.helpers.architectures import check, plain_mlps
from tests.helpers.language_models import byte_tokenizer, tiny_language_model

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "vocab_size": 300,
}
MOE: dict[str, Any] = SIZES | {
    "moe_intermediate_size": 48,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
GPT: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 300}


def outline(config: PreTrainedConfig) -> Architecture:
    with torch.device("meta"):
        return Architecture(AutoModelForCausalLM.from_config(config), "tiny")


@pytest.mark.parametrize(
    "config",
    [
        DeepseekV3Config(**MOE, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8),
        Glm4MoeConfig(**MOE | {"head_dim": 8}),
        Dots1Config(**MOE),
        Ernie4_5_MoeConfig(**SIZES, moe_num_experts=4, moe_k=2, moe_num_shared_experts=1, moe_layer_start_index=1),
    ],
    ids=lambda config: config.model_type,
)
def test_a_mixture_of_experts_with_a_shared_expert_is_no_plain_mlp(config: PreTrainedConfig) -> None:
    architecture = outline(config)
    assert architecture.mlp_shape(0).hidden_width == 64
    with pytest.raises(UserError, match="layer 1 of tiny cannot be replaced: like a mixture of experts, it has other"):
        architecture.mlp_shape(1)


def test_an_mlp_beside_experts_is_no_plain_mlp() -> None:
    """Gemma 4's mixtures of experts add the outputs of an MLP and of its experts."""
    gemma: dict[str, Any] = SIZES | {"head_dim": 8, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 300}
    config = Gemma4TextConfig(**gemma, enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=48)
    architecture = outline(config)
    assert plain_mlps(architecture) == []
    with pytest.raises(UserError, match=r"the block also has experts \(experts\)"):
        architecture.mlp_shape(0)
    assert plain_mlps(outline(Gemma4TextConfig(**gemma))) == [0, 1]


def test_an_mlp_that_adds_the_residual_itself_is_rejected() -> None:
    config = BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=300)
    with pytest.raises(UserError, match=r"it needs 2 inputs \(hidden_states, residual\)"):
        outline(config).mlp_shape(0)


def test_the_text_models_blocks_are_found_beside_a_vision_tower_of_as_many() -> None:
    vision = SiglipVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )
    config = Gemma3Config(text_config=SIZES | {"head_dim": 8}, vision_config=vision.to_dict(), mm_tokens_per_image=4)
    shape = outline(config).mlp_shape(0)
    assert (shape.input_width, shape.hidden_width, shape.output_width) == (32, 64, 32)


@pytest.mark.parametrize(
    "config",
    [
        GPT2Config(**GPT),
        GPTJConfig(**GPT, rotary_dim=4),
        OPTConfig(**SIZES | {"ffn_dim": 64, "word_embed_proj_dim": 32}),
        BioGptConfig(**SIZES),
    ],
    ids=lambda config: config.model_type,
)
def test_learned_and_stored_positions_end(config: PreTrainedConfig) -> None:
    architecture = outline(config)
    architecture.check_context_length(64)
    with pytest.raises(
        UserError, match=r"Sequences of 65 tokens exceed the context length of tiny, 64 tokens\. It has no"
    ):
        architecture.check_context_length(65)


def test_rotary_positions_go_on_with_a_warning() -> None:
    architecture = outline(LlamaConfig(**SIZES))
    architecture.check_context_length(64)
    with pytest.warns(
        UsageWarning, match=r"Sequences of 65 tokens exceed the context length of tiny, 64 tokens\. It was"
    ):
        architecture.check_context_length(65)


def test_a_token_without_an_embedding_is_an_error() -> None:
    tokenizer = byte_tokenizer()
    language_model = tiny_language_model()
    assert language_model.architecture.vocabulary_size == len(tokenizer) == 257
    language_model.logits(torch.tensor([[256]]))
    calls = (
        language_model.logits,
        lambda ids: language_model.capture(0, ids),
        lambda ids: language_model.mlp_inputs([0], ids),
        language_model.residual,
    )
    for call in calls:
        with pytest.raises(UserError, match="tiny-llama has no token 257: its input embedding has 257 rows"):
            call(torch.tensor([[1, 257]]))


def test_a_token_that_only_the_tokenizer_has_is_named() -> None:
    from copy import deepcopy

    from mxd.trainer.language_model.tokenizer import prompt_ids

    tokenizer = deepcopy(byte_tokenizer())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>"]})
    language_model = LanguageModel(tiny_language_model().module, tokenizer, "tiny")
    with pytest.raises(UserError, match=r"tiny has no token 257 \('<\|user\|>'\)"):
        prompt_ids(language_model, "hello <|user|>")


EXACT = {"capture", "train", "index", "evaluate", "steer", "circuit", "vectors", "attach"}
KINDS = {
    "gpt2": EXACT,
    "opt": EXACT,
    "falcon": EXACT,
    "gemma2": EXACT,
    "granite": EXACT,
    "deepseek_v3": EXACT,
    "olmo2": EXACT,
    "lfm2": EXACT,
    "gemma3n_text": EXACT - {"circuit", "vectors"},
    "bloom": set[str](),
}
"""Architecture -> exact checks.

They differ in transposed weights, an MLP without a module, sums in place, norms after the MLP, a residual multiplier,
dense blocks beside expert blocks, norms of outputs and convolution states. Gemma 3n shares keys and values and has
several residual streams. BLOOM's MLP has two arguments.
"""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_check_is_exact_or_refused(kind: str, tmp_path: Path) -> None:
    cells = check(kind, tmp_path)
    assert {name: cell for name, cell in cells.items() if not cell.holds} == {}
    assert {name for name, cell in cells.items() if cell.difference is not None} == KINDS[kind]
