"""A language model spread over several places, or in outline, beside the same one on one device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.language_models import CONFIGS, VOCABULARY, saved_language_model
from tests.runs import World
from trainer.anatomy import Anatomy
from trainer.config import LayerConfig
from trainer.errors import NotFoundError, UserError
from trainer.language_model import LanguageModel
from trainer.layers.registry import build_layer
from trainer.loading import DeviceMap, load_outline
from trainer.run import Run
from trainer.train import train

IDS_BT = torch.randint(0, VOCABULARY, (2, 11), generator=torch.Generator().manual_seed(1))


def half_on_disk(plain: LanguageModel) -> DeviceMap:
    """The first block and all that is no block in memory, the other blocks on disk."""
    blocks = next(name for name, module in plain.module.named_modules() if module is plain.anatomy.blocks)
    leaves = [name for name, module in plain.module.named_modules() if name and not list(module.children())]
    return {name: "cpu" for name in leaves if not name.startswith(f"{blocks}.")} | {
        f"{blocks}.{layer}": "disk" if layer else "cpu" for layer in range(plain.config.num_hidden_layers)
    }


@pytest.fixture(params=["falcon", "gpt2", "llama", "opt"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LanguageModel, LanguageModel]:
    folder = str(saved_language_model(tmp_path, request.param))
    plain = LanguageModel.load(folder, "cpu")
    return plain, LanguageModel.spread(folder, half_on_disk(plain), torch.float32)


def test_a_spread_language_model_has_the_activations_of_the_plain_one(
    both: tuple[LanguageModel, LanguageModel],
) -> None:
    plain, spread = both
    assert all(parameter.is_meta for parameter in spread.anatomy.block(1).parameters())
    assert spread.device == spread.device_of(2) == torch.device("cpu")
    wanted, found = plain.captures([0, 1, 2], IDS_BT), spread.captures([0, 1, 2], IDS_BT)
    assert wanted.keys() == found.keys()
    for layer in wanted:
        assert torch.equal(wanted[layer].input_TI, found[layer].input_TI)
        assert torch.equal(wanted[layer].output_TO, found[layer].output_TO)
    assert torch.equal(plain.mlp_inputs([2], IDS_BT)[2], spread.mlp_inputs([2], IDS_BT)[2])
    assert torch.equal(plain.logits(IDS_BT), spread.logits(IDS_BT))


def test_weights_on_disk_are_read_where_a_layer_starts_from_them(both: tuple[LanguageModel, LanguageModel]) -> None:
    plain, spread = both
    assert plain.mlp_shape(2) == spread.mlp_shape(2)
    for wanted, found in zip(plain.encoder_weights(2), spread.encoder_weights(2), strict=True):
        assert (wanted is None) == (found is None)
        assert wanted is None or found is None or torch.equal(wanted, found)
    assert torch.equal(plain.decoder_weight(2), spread.decoder_weight(2))


def test_a_layer_replaces_an_mlp_of_a_spread_language_model(both: tuple[LanguageModel, LanguageModel]) -> None:
    plain, spread = both
    shape = plain.mlp_shape(1)
    config = LayerConfig.model_validate({**vars(shape), "num_experts": 8, "k": 2})
    layer = build_layer(config)
    layer.get_parameter("decoder.weight").data.normal_()
    with plain.replace({1: layer}), spread.replace({1: layer}):
        assert torch.equal(plain.logits(IDS_BT), spread.logits(IDS_BT))
    assert torch.equal(plain.logits(IDS_BT), spread.logits(IDS_BT))


def test_a_fit_on_a_spread_language_model_ends_with_the_same_weights(world: World, tmp_path: Path) -> None:
    folder = str(saved_language_model(tmp_path / "language-model"))
    plain = LanguageModel.load(folder, "cpu")
    spread = LanguageModel.spread(folder, half_on_disk(plain), torch.float32)
    for name, language_model in (("plain", plain), ("spread", spread)):
        config = world.config(name=name, language_model=folder)
        assert train(config, world.data, world.store, language_model).status == "finished"
    wanted, found = (Run.load(name, world.data).layer.state_dict() for name in ("plain", "spread"))
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


def test_spread_fills_what_there_is(tmp_path: Path) -> None:
    folder = str(saved_language_model(tmp_path))
    spread = LanguageModel.load(folder, "spread", torch.float32)
    assert torch.equal(LanguageModel.load(folder, "cpu").logits(IDS_BT), spread.logits(IDS_BT).cpu())


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_an_outline_has_the_shapes_and_no_weights(family: str, tmp_path: Path) -> None:
    CONFIGS[family].save_pretrained(tmp_path)
    outline = load_outline(str(tmp_path))
    assert all(parameter.is_meta for parameter in outline.parameters())
    whole = saved_language_model(tmp_path / "whole", family)
    plain = LanguageModel.load(str(whole), "cpu")
    assert Anatomy(outline, family).mlp_shape(1) == plain.mlp_shape(1)
    assert sum(it.numel() for it in outline.parameters()) == sum(it.numel() for it in plain.module.parameters())


def test_an_outline_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no folder"):
        load_outline(str(tmp_path / "missing"))
    (tmp_path / "config.json").write_text('{"model_type": "resnet"}')
    with pytest.raises(UserError, match="cannot be loaded"):
        load_outline(str(tmp_path))
