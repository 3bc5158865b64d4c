"""Tiny GGUF files with random weights, written from a config."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import gguf
import numpy as np
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config

Family = Literal["llama", "qwen2"]
START, END = "<|im_start|>", "<|endoftext|>"
HEADS, KV_HEADS, BLOCKS = 4, 2, 2
_SIZES = {
    "hidden_size": 64,  # rows of Q8_0 weights are multiples of 32
    "intermediate_size": 96,
    "num_hidden_layers": BLOCKS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
_VOCABULARY = [END, START, *sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the"]


def write_gguf(path: Path, family: Family = "llama") -> PreTrainedModel:
    """Write a Q8_0 file and return the model with the original weights in float32."""
    configs = {"llama": LlamaConfig, "qwen2": Qwen2Config}
    torch.manual_seed(0)
    module: PreTrainedModel = AutoModelForCausalLM.from_config(
        configs[family](vocab_size=len(_VOCABULARY), **_SIZES)
    ).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    writer = gguf.GGUFWriter(path, family)
    _write_metadata(writer)
    arch = gguf.MODEL_ARCH.LLAMA if family == "llama" else gguf.MODEL_ARCH.QWEN2
    names = gguf.get_tensor_name_map(arch, BLOCKS)
    for name, tensor in module.state_dict().items():
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None
        array = _permuted(name, tensor.numpy()) if family == "llama" else tensor.numpy()
        if array.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(stored, gguf.quants.quantize(np.ascontiguousarray(array), kind), raw_dtype=kind)
        else:
            writer.add_tensor(stored, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return module


def _write_metadata(writer: gguf.GGUFWriter) -> None:
    writer.add_name("Tiny")
    writer.add_organization("Example")
    writer.add_license("mit")
    writer.add_context_length(_SIZES["max_position_embeddings"])
    writer.add_embedding_length(_SIZES["hidden_size"])
    writer.add_feed_forward_length(_SIZES["intermediate_size"])
    writer.add_block_count(BLOCKS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(_VOCABULARY))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(_VOCABULARY)
    writer.add_token_merges(["t h", "th e"])
    writer.add_token_types([gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (len(_VOCABULARY) - 2))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(0)


def _permuted(name: str, array: np.ndarray) -> np.ndarray:
    """Order of rows that GGUF files of the Llama architecture have in query and key matrices."""
    heads = HEADS if "q_proj" in name else KV_HEADS if "k_proj" in name else 0
    if not heads:
        return array
    return array.reshape(heads, 2, len(array) // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)
