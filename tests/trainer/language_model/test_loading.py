"""Loading: dispatched models and outlines against a model on one device, and rejected weights."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mxd.trainer.config import LayerConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.loading import DeviceMap, is_shard, load_outline
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.utils.distributed import init_process_group
from tests.helpers.forking.torchrun import run_processes
from tests.helpers.language_models import CONFIGS, OTHER_CACHES, VOCABULARY, saved_language_model
from tests.helpers.runs import World

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
