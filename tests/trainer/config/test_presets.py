"""Presets name existing layers; each is checked against the config class of its architecture."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    PreTrainedConfig,
    Qwen3Config,
)

from mxd.trainer.config import LayerConfig
from mxd.trainer.config.presets import FOLDER, preset_file, presets, shape_of
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.layers.registry import build_layer, matched_num_experts


def llama_like(kind: Any, width: int, hidden: int, layers: int, heads: int, key_values: int, **more: Any) -> Any:
    return kind(
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_values,
        **more,
    )


def pythia(width: int, layers: int, heads: int) -> GPTNeoXConfig:
    return GPTNeoXConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers, num_attention_heads=heads
    )


SIZES: dict[str, PreTrainedConfig] = {
    "gpt2": GPT2Config(),
    "pythia-410m": pythia(1024, 24, 16),
    "pythia-1.4b": pythia(2048, 24, 16),
    "llama-3.2-1b": llama_like(LlamaConfig, 2048, 8192, 16, 32, 8),
    "llama-3.2-3b": llama_like(LlamaConfig, 3072, 8192, 28, 24, 8, head_dim=128),
    "llama-3.1-8b": llama_like(LlamaConfig, 4096, 14336, 32, 32, 8),
    "qwen3-1.7b": llama_like(Qwen3Config, 2048, 6144, 28, 16, 8, head_dim=128),
    "qwen3-8b": llama_like(Qwen3Config, 4096, 12288, 36, 32, 8, head_dim=128),
    "gemma-3-1b": llama_like(Gemma3TextConfig, 1152, 6912, 26, 4, 1, head_dim=256),
    "olmo-2-1b": llama_like(Olmo2Config, 2048, 8192, 16, 16, 16),
    "qwen3-32b": llama_like(Qwen3Config, 5120, 25600, 64, 64, 8, head_dim=128),
    "llama-3.1-70b": llama_like(LlamaConfig, 8192, 28672, 80, 64, 8),
    "mistral-7b": llama_like(MistralConfig, 4096, 14336, 32, 32, 8),
}
"""Preset -> published config of its language model."""

BILLIONS = {
    "gpt2": 0.124,
    "pythia-410m": 0.405,
    "pythia-1.4b": 1.415,
    "llama-3.2-1b": 1.236,
    "llama-3.2-3b": 3.213,
    "llama-3.1-8b": 8.030,
    "llama-3.1-70b": 70.554,
    "qwen3-1.7b": 1.721,
    "qwen3-8b": 8.191,
    "qwen3-32b": 32.762,
    "gemma-3-1b": 1.000,
    "olmo-2-1b": 1.485,
    "mistral-7b": 7.248,
}
"""Published number of parameters, in billions."""

PAPERS = {"gpt2": 21_490, "pythia-410m": 28_658, "pythia-1.4b": 57_330, "llama-3.2-3b": 86_015}
"""Number of experts in the paper."""


def test_every_preset_is_checked_against_an_architecture() -> None:
    assert {preset.name for preset in presets()} == set(SIZES)
    assert preset_file("gpt2") == FOLDER / "gpt2.toml"
    assert preset_file("gpt3") is None


@pytest.mark.parametrize("preset", presets(), ids=lambda preset: preset.name)
def test_the_layer_exists_at_full_size(preset: Any) -> None:
    with torch.device("meta"):
        outline = AutoModelForCausalLM.from_config(SIZES[preset.name])
        architecture = Architecture(outline, preset.language_model)
        shape = architecture.mlp_shape(preset.layer)
        config = LayerConfig(num_experts=preset.num_experts or 1, k=preset.k, **asdict(shape))
        num_experts = preset.num_experts or matched_num_experts(config, shape.input_width)
        layer = build_layer(config.model_copy(update={"num_experts": num_experts}))
    transcoder = 32 * shape.input_width * (shape.input_width + 1 + shape.output_width) + shape.output_width
    assert 0.3 < preset.layer / len(architecture.blocks) < 0.7
    assert layer.num_parameters < 1.001 * transcoder
    assert num_experts == PAPERS.get(preset.name, num_experts)
    assert preset.num_experts is not None or layer.num_parameters > 0.999 * transcoder


@pytest.mark.parametrize("name", sorted(SIZES))
def test_the_shape_matches_the_published_config(name: str) -> None:
    shape = AutoConfig.for_model(**shape_of(name))
    assert type(shape) is type(SIZES[name])
    for field in ("hidden_size", "num_hidden_layers", "num_attention_heads"):
        assert getattr(shape, field) == getattr(SIZES[name], field)
    with torch.device("meta"):
        outline = AutoModelForCausalLM.from_config(shape)
    count = sum(parameter.numel() for parameter in outline.parameters())
    assert count / 1e9 == pytest.approx(BILLIONS[name], abs=0.0006)
