"""MLPs, positions and residual streams of many architectures: exact, or refused with a sentence."""

from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Gemma3Config, PreTrainedConfig, SiglipVisionConfig

from mxd.trainer.errors import UsageWarning, UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from tests.helpers.architectures import CELLS, TOLERANCE, Checks, plain_mlps, tiny_config
from tests.helpers.runs import byte_tokenizer, tiny_language_model


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


PLAIN = ("cohere", "falcon", "llama", "opt")
CHANGED = ("exaone4", "gemma2", "gemma3_text", "gemma4_text", "glm4", "granite", "olmo2", "olmo3")
"""Families whose blocks add a norm or a multiple of the MLP's output, or scale the sum."""
OTHER_SETTINGS: dict[str, dict[str, Any]] = {
    "gemma4_text": {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0},
    "granite": {"residual_multiplier": 0.22},
}
WIDTH, LAYER, IDS = 32, 1, [0, 5, 90, 17, 33, 120]
FAMILIES = pytest.mark.parametrize("name", PLAIN + CHANGED)


def model_of(kind: str, **settings: Any) -> LanguageModel:
    torch.manual_seed(0)
    config = tiny_config(kind)
    for name, value in (OTHER_SETTINGS.get(kind, {}) | settings).items():
        setattr(config, name, value)
    module = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.2) if parameter.dim() > 1 else parameter.uniform_(0.5, 1.5)
        for name, scale in module.named_buffers():
            if name.endswith("layer_scalar"):
                scale.fill_(0.5)
    return LanguageModel(module, byte_tokenizer(), "tiny")


def block_output(model: LanguageModel, vector_TO: Tensor, silent: bool = False) -> Tensor:
    """Output [T, W] of the block, whose MLP's output lacks a vector at every token; ``silent`` removes the output."""
    block, seen = model.architecture.block(LAYER), list[Tensor]()
    mlp = block.get_submodule(model.architecture.mlp_names(LAYER)[1])

    def change(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        kept = torch.zeros_like(output) if silent else output
        return kept - vector_TO.reshape(output.shape)

    def record(_module: nn.Module, _inputs: Any, output: Any) -> None:
        seen.append((output[0] if isinstance(output, tuple) else output)[0].clone())

    handles = [mlp.register_forward_hook(change), block.register_forward_hook(record)]
    with torch.no_grad():
        model.module(input_ids=torch.tensor([IDS]), use_cache=False)
    for handle in handles:
        handle.remove()
    return seen[0]


@FAMILIES
def test_additions_equal_the_difference_of_plain_hooks(name: str) -> None:
    model = model_of(name)
    vector_RO = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(3))
    positions, plain_TW = [5, 2, 2], block_output(model, torch.zeros(6, WIDTH))
    added_RW = model.additions.of_vectors(LAYER, IDS, positions, vector_RO)
    for position, vector_O, added_W in zip(positions, vector_RO, added_RW, strict=True):
        change_TO = torch.zeros(6, WIDTH)
        change_TO[position] = vector_O
        expected_W = (plain_TW - block_output(model, change_TO))[position]
        torch.testing.assert_close(added_W, expected_W, atol=2e-5, rtol=1e-4)
        assert torch.allclose(added_W, vector_O, atol=1e-4) is (name in PLAIN)
    vector_TO = vector_RO.repeat(2, 1)
    added_TW = model.additions.of_sequence(LAYER, IDS, vector_TO)
    torch.testing.assert_close(added_TW, plain_TW - block_output(model, vector_TO), atol=2e-5, rtol=1e-4)
    nothing_TW = block_output(model, torch.zeros(6, WIDTH), silent=True)
    for added_W, vector_O in zip(model.additions.of_directions(LAYER, vector_RO), vector_RO, strict=True):
        only_TW = block_output(model, -vector_O.expand(6, WIDTH), silent=True)
        torch.testing.assert_close(added_W, (only_TW - nothing_TW)[0], atol=2e-5, rtol=1e-4)


@FAMILIES
def test_additions_of_small_vectors_are_not_rounded_in_half_precision(name: str) -> None:
    half, exact = model_of(name), model_of(name)
    half.module.to(torch.bfloat16)
    exact.module.load_state_dict({name: value.float() for name, value in half.module.state_dict().items()})
    before = dict(half.module.named_parameters())
    vector_1O = 1e-3 * torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(3))
    added_1W, expected_1W = (model.additions.of_vectors(LAYER, IDS, [3], vector_1O) for model in (half, exact))
    assert (added_1W - expected_1W).norm() < 0.1 * expected_1W.norm()  # the stream before the block is rounded
    assert all(weight is before[name] for name, weight in half.module.named_parameters())


@FAMILIES
def test_later_blocks_pass_the_stream_on(name: str) -> None:
    """Gemma 4 multiplies the stream at the end of each block, here by 0.5."""
    model = model_of(name)
    expected = [0.125, 0.25, 0.5, 1.0] if name == "gemma4_text" else [1.0] * 4
    assert [model.additions.passed_on(layer) for layer in range(4)] == pytest.approx(expected, rel=1e-4)


def test_a_norm_of_the_sum_has_no_direct_effects() -> None:
    model = model_of("opt", do_layer_norm_before=False, word_embed_proj_dim=16)
    assert not model.additions.has_direct_effects(1)
    assert model.additions.passed_on(3) == 1.0  # no block follows
    with pytest.raises(UserError, match=r"Direct effects of layer 1 do not exist in tiny.*steering or ablation"):
        model.additions.passed_on(1)
    with pytest.raises(UserError, match="do not exist"):
        model.additions.of_directions(1, torch.randn(2, WIDTH))
    vector_RO = torch.randn(1, WIDTH)
    change_TO = torch.zeros(6, WIDTH)
    change_TO[4] = vector_RO[0]
    expected_W = (block_output(model, torch.zeros(6, WIDTH)) - block_output(model, change_TO))[4]
    torch.testing.assert_close(model.additions.of_vectors(LAYER, IDS, [4], vector_RO)[0], expected_W, atol=2e-5, rtol=0)


def test_several_residual_streams_are_refused() -> None:
    model = model_of("gemma3n_text")
    assert not model.additions.has_direct_effects(1)
    with pytest.raises(UserError, match="do not add to one residual stream"):
        model.additions.of_vectors(LAYER, IDS, [4], torch.randn(1, WIDTH))
