"""Tiny randomly initialised language models and a byte-level tokenizer, made in code."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from mxd.trainer.language_model.model import LanguageModel

VOCABULARY = 257
END = "<|endoftext|>"
ENDLESS_TEMPLATE = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
"""A chat template of two nested loops, which takes hours."""

_SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
_LONG: dict[str, Any] = _SIZES | {"intermediate_size": 24, "max_position_embeddings": 128}
_LLAMA_LIKE: dict[str, Any] = _LONG | {"num_key_value_heads": 2}


def _config(kind: str, **settings: Any) -> PreTrainedConfig:
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
    return AutoConfig.for_model(kind, vocab_size=VOCABULARY, **special, **settings)


CONFIGS: dict[str, PreTrainedConfig] = {
    "gpt2": _config("gpt2", n_embd=16, n_layer=3, n_head=2, n_positions=128),
    "gpt-neox": _config("gpt_neox", **_LONG),
    **{
        kind: _config(kind, **_LLAMA_LIKE, head_dim=8)
        for kind in ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3")
    },
    "phi": _config("phi", **_LLAMA_LIKE),
    "opt": _config("opt", **_SIZES, ffn_dim=24, max_position_embeddings=128, word_embed_proj_dim=16),
    "falcon": _config("falcon", **_SIZES, ffn_hidden_size=24),
}
SCALED = {"granite": _config("granite", **_LLAMA_LIKE, residual_multiplier=0.22)}
"""Families that add a multiple of the MLP's output to the residual stream."""

OTHER_CACHES: dict[str, PreTrainedConfig] = {
    "lfm2": _config(
        "lfm2",
        **_LLAMA_LIKE,
        head_dim=8,
        block_ff_dim=24,
        block_auto_adjust_ff_dim=False,
        layer_types=["conv", "full_attention", "conv"],
    ),
    "gemma3n": _config(
        "gemma3n_text",
        **_LLAMA_LIKE | {"num_hidden_layers": 4},
        head_dim=8,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=VOCABULARY,
        laurel_rank=4,
        altup_num_inputs=2,
        num_kv_shared_layers=2,
        activation_sparsity_pattern=[0.0] * 4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=8,
    ),
}
"""Families whose cache is not one pair of keys and values per block: convolution states, shared pairs."""


@cache
def byte_tokenizer() -> PreTrainedTokenizerBase:
    """One token per byte, and the end-of-text token with id 0."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {END: 0} | {character: place + 1 for place, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END, pad_token=END)


def tiny_language_model(family: str = "llama", seed: int = 0) -> LanguageModel:
    """A language model of a family with a few thousand random weights, on the CPU in float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # A copy: who changes the config of one changes none of the others.
        module = AutoModelForCausalLM.from_config(
            deepcopy({**CONFIGS, **OTHER_CACHES, **SCALED}[family]), dtype=torch.float32
        )
    for parameter in module.parameters():
        # Starting values are so small that every next-token distribution would be flat and every test blind.
        parameter.data.mul_(3.0) if parameter.dim() > 1 else None
    return LanguageModel(module, byte_tokenizer(), f"tiny-{family}")


def sure_language_model() -> LanguageModel:
    """A tiny language model with confident, mostly wrong predictions."""
    language_model = tiny_language_model()
    language_model.module.get_output_embeddings().weight.data.mul_(25.0)
    return language_model


def saved_language_model(folder: Path, family: str = "llama", seed: int = 0) -> Path:
    """``tiny_language_model`` in a folder that ``LanguageModel.load`` reads."""
    return saved(tiny_language_model(family, seed), folder)


def saved(language_model: LanguageModel, folder: Path) -> Path:
    language_model.module.save_pretrained(folder)
    language_model.tokenizer.save_pretrained(folder)
    return folder
