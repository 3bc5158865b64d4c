"""The shape of a language model without its weights, and the same shape cut to a few blocks with random weights."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mxd.trainer.config.presets import Preset, preset_file, shape_of
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.loading import load_outline
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

MIDDLE_K = 32
"""K if no preset defines it."""


@dataclass(frozen=True)
class Shape:
    """A language model's config, and the layer to train at full size."""

    name: str
    config: PreTrainedConfig
    layer: int
    """Index of the block whose MLP is replaced."""
    num_experts: int | None
    """N; None to match a transcoder's parameters."""
    k: int

    @classmethod
    def find(cls, what: str) -> Shape:
        """Read a preset, or the config of a folder or Hub name with its middle block.

        Raises:
            UserError: it is neither.
        """
        path = preset_file(what)
        if path is not None:
            preset = Preset.read(path)
            return cls(preset.name, _preset_config(what), preset.layer, preset.num_experts, preset.k)
        config: PreTrainedConfig = load_outline(what).config.get_text_config()
        return cls(what, config, config.num_hidden_layers // 2, None, MIDDLE_K)

    @property
    def blocks(self) -> int:
        """Number of blocks of the whole language model."""
        return int(self.config.num_hidden_layers)

    def write(self, folder: Path, blocks: int | None = None) -> str:
        """Write the config, with this many blocks, into a folder to plan with."""
        name = str(blocks or self.blocks)
        self.cut(blocks or self.blocks).save_pretrained(folder / name)
        return str(folder / name)

    def cut(self, blocks: int) -> PreTrainedConfig:
        """Return the config of the first blocks."""
        config = copy.deepcopy(self.config)
        if kinds := getattr(config, "layer_types", None):
            config.layer_types = kinds[:blocks]
        config.num_hidden_layers = blocks
        return config


def _preset_config(name: str) -> PreTrainedConfig:
    from transformers import AutoConfig

    config: PreTrainedConfig = AutoConfig.for_model(**shape_of(name))
    return config


def in_memory(folder: str, tokenizer: Path, dtype: torch.dtype, device: str) -> LanguageModel:
    """Build a language model with random weights from a config."""
    return LanguageModel(_random(folder, dtype).to(device), load_tokenizer(str(tokenizer)), folder)  # type: ignore[arg-type]


def on_disk(folder: str, tokenizer: Path, dtype: torch.dtype, device: str) -> LanguageModel:
    """Move its blocks into files that a forward pass reads one after the other; the embedding, of which few rows are
    read, stays on the device."""
    found = load_tokenizer(str(tokenizer))
    module = _random(folder, dtype)
    module.save_pretrained(folder)
    found.save_pretrained(folder)
    places = _places(module, folder, device)
    del module
    return LanguageModel.dispatched(folder, places, dtype)


def _random(folder: str, dtype: torch.dtype) -> PreTrainedModel:
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module: PreTrainedModel = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=dtype)
    return module


def _places(module: PreTrainedModel, folder: str, device: str) -> dict[str, str]:
    """Device map: blocks and unembedding on disk, the rest on the device."""
    named: dict[str, Any] = dict(module.named_modules())
    blocks = Architecture(module, folder).blocks
    inside = next(name for name, found in named.items() if found is blocks)
    unembedding, embedding = module.get_output_embeddings(), module.get_input_embeddings()
    tied = unembedding is None or unembedding.weight is embedding.weight
    leaves = [name for name, found in named.items() if name and not list(found.children())]
    outside = {
        name: "disk" if named[name] is unembedding and not tied else device
        for name in leaves
        if not name.startswith(f"{inside}.")
    }
    return outside | {f"{inside}.{number}": "disk" for number in range(len(blocks))}
