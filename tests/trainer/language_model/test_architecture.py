"""MLPs, tokens and positions of many architectures: every check is exact, or refused with a sentence."""

from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3Config, PreTrainedConfig, SiglipVisionConfig

from mxd.trainer.errors import UsageWarning, UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from tests.helpers.architectures import CELLS, TOLERANCE, Checks, plain_mlps, tiny_config
from tests.helpers.language_models import byte_tokenizer, tiny_language_model


def outline(config: PreTrainedConfig) -> Architecture:
    with torch.device("meta"):
        return Architecture(AutoModelForCausalLM.from_config(config), "tiny")


@pytest.mark.parametrize("kind", ["deepseek_v3", "glm4_moe", "dots1", "ernie4_5_moe"])
def test_a_mixture_of_experts_with_a_shared_expert_is_no_plain_mlp(kind: str) -> None:
    architecture = outline(tiny_config(kind))
    assert architecture.mlp_shape(0).hidden_width == 64
    with pytest.raises(UserError, match="layer 1 of tiny cannot be replaced: like a mixture of experts, it has other"):
        architecture.mlp_shape(1)


def test_an_mlp_beside_experts_is_no_plain_mlp() -> None:
    """Gemma 4's mixtures of experts add the outputs of an MLP and of its experts."""
    config = tiny_config("gemma4_text")
    assert plain_mlps(outline(config)) == [0, 1, 2, 3]
    config.enable_moe_block = True
    architecture = outline(config)
    assert plain_mlps(architecture) == []
    with pytest.raises(UserError, match=r"the block also has experts \(experts\)"):
        architecture.mlp_shape(0)


def test_an_mlp_that_adds_the_residual_itself_is_rejected() -> None:
    with pytest.raises(UserError, match=r"it needs 2 inputs \(hidden_states, residual\)"):
        outline(tiny_config("bloom")).mlp_shape(0)


def test_the_text_models_blocks_are_found_beside_a_vision_tower_of_as_many() -> None:
    text = tiny_config("gemma3_text")
    vision = SiglipVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=2, image_size=28, patch_size=14
    )
    config = Gemma3Config(text_config=text.to_dict(), vision_config=vision.to_dict(), mm_tokens_per_image=4)
    shape = outline(config).mlp_shape(0)
    assert (shape.input_width, shape.hidden_width, shape.output_width) == (32, 64, 32)


@pytest.mark.parametrize("kind", ["gpt2", "gptj", "opt", "biogpt"])
def test_learned_and_stored_positions_end(kind: str) -> None:
    architecture = outline(tiny_config(kind))
    architecture.check_context_length(64)
    message = r"Sequences of 65 tokens exceed the context length of tiny, 64 tokens\. It has no"
    with pytest.raises(UserError, match=message):
        architecture.check_context_length(65)


def test_rotary_positions_go_on_with_a_warning() -> None:
    architecture = outline(tiny_config("llama"))
    architecture.check_context_length(64)
    with pytest.warns(UsageWarning, match=r"exceed the context length of tiny, 64 tokens\. It was"):
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
    tokenizer = deepcopy(byte_tokenizer())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>"]})
    language_model = LanguageModel(tiny_language_model().module, tokenizer, "tiny")
    with pytest.raises(UserError, match=r"tiny has no token 257 \('<\|user\|>'\)"):
        prompt_ids(language_model, "hello <|user|>")


EXACT = set(CELLS)
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_every_check_is_exact_or_refused(kind: str, tmp_path: Path) -> None:
    checks = Checks(kind, tmp_path)
    for name in CELLS:
        with nullcontext() if name in KINDS[kind] else pytest.raises(UserError):
            assert getattr(checks, name)() <= TOLERANCE, name
