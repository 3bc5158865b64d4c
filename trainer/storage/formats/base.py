"""Shared by the formats of other libraries: imported layers, configs, tensors and hook names.

TransformerLens calls the norm before an MLP ``ln2``. With folded norms, ``hook_normalized`` is its output before weight
and bias. Without folding, it is the output after them for a LayerNorm and before the weight for an RMSNorm.
``hook_mlp_out`` is the MLP's output, or that of a norm after the MLP in architectures that have one.

Shapes: I input width, O output width, N experts.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mxd.trainer.config.layer import Activation, Encoder, Method
from mxd.trainer.errors import UserError
from mxd.trainer.layers.variants import Transcoder
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.files import explained

NEUTRAL: tuple[object, ...] = (None, False, 0, "", "none", [], {})
"""Values that turn a setting off."""
SpecialToken = Literal["bos_token", "eos_token", "pad_token"]
Reads = Literal["mlp-input", "folded-norm", "norm"]
"""mlp-input: the MLP's input. folded-norm: the preceding norm's output before its weight and bias. norm: the same for
an RMSNorm, the output after weight and bias for a LayerNorm."""


@dataclass(frozen=True)
class ImportedLayer:
    """A layer from a file, with our names for its tensors."""

    method: Method
    k: int
    """K, or N for a method without a top-k."""
    tensors: Mapping[str, Tensor]
    """Tensors under the names of ``SparseLayer.state_dict``."""
    reads: Reads
    layer: int | None
    weights: Path
    version: str | None = None
    activation: Activation | None = None
    """Activation function of an MxD's encoder."""
    encoder: Encoder | None = None
    text: str | None = None
    tokens: int = 0
    context: int | None = None
    writes_addition: bool = False
    """True if its output replaces what the block adds to the residual stream, such as the output of a norm after the
    MLP."""
    input_norm: str | None = None
    """Name of the norm whose output it reads, if stated. It must be the norm before the MLP."""
    start_tokens: tuple[SpecialToken, ...] = ()
    """Special tokens of the language model; the first that its tokenizer has preceded every text in training. Empty if
    neither the file nor the format states it."""

    @classmethod
    def transcoder(cls, tensors: dict[str, Tensor], k: int | None, **facts: Any) -> Self:
        """A transcoder with a top-k; if ``k`` is None, with a threshold per feature, which is 0 for a ReLU."""
        bias_N = tensors["gate.bias"]
        if k is None:
            tensors = {"threshold_N": torch.zeros_like(bias_N), **tensors}
        method = f"{'jumprelu-' if k is None else ''}{'skip-' if 'skip.weight' in tensors else ''}transcoder"
        return cls(method, k or len(bias_N), tensors, **facts)

    @property
    def num_experts(self) -> int:
        return len(self.tensors["gate.weight"])


@dataclass(frozen=True)
class SourceSettings:
    """Config from a file, with error messages for missing and invalid values."""

    values: Mapping[str, Any]
    where: str

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.values.get(name, default)
        if type(value) is not int or value < 1:
            raise UserError(f"Invalid config: {self.where} needs a positive integer '{name}'.")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise UserError(f"Invalid config: {self.where} needs a string '{name}'.")
        return value

    def flag(self, name: str) -> bool:
        return self.values.get(name) is True

    def part(self, name: str) -> Self:
        value = self.values.get(name)
        return type(self)(value if isinstance(value, dict) else {}, self.where)

    def check_known(self, known: Collection[str]) -> None:
        """Check that no other setting has a value, because an unknown one may change the layer's output. Raises
        UserError if one has."""
        unknown = [name for name, value in self.values.items() if name not in known and value not in NEUTRAL]
        if unknown:
            raise UserError(
                f"Unsupported setting: {unknown[0]} = {self.values[unknown[0]]!r:.60} in {self.where}. Remove it if it "
                "does not change the layer's output."
            )

    def tokens(self, name: str) -> int:
        value = self.values.get(name)
        return value if type(value) is int and value > 0 else 0


@dataclass
class SourceTensors:
    """Tensors of a file. Each must be read or ignored explicitly."""

    values: dict[str, Tensor]
    where: str
    _used: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a safetensors file. Raises UserError if the file is not a safetensors file."""
        message = f"Invalid safetensors file: {path} ({{error}}). Download it again."
        with explained(message, SafetensorError, OSError):
            return cls(load_file(path), path.name)

    def under(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """Return required tensors under our names, given our names -> those of the file. Matrices that the file holds
        transposed have ``.T`` after their name."""
        return {
            ours: self.pop(name.removesuffix(".T")).T if name.endswith(".T") else self.pop(name)
            for ours, name in names.items()
        }

    def pop(self, name: str) -> Tensor:
        if name not in self.values:
            names = ", ".join(sorted(self.values)[:12]) or "none"
            raise UserError(f"Missing tensor: {name} in {self.where}. Its tensors: {names}.")
        self._used.add(name)
        value = self.values[name]
        if not value.is_floating_point() or not bool(torch.isfinite(value).all()):
            raise UserError(f"Tensor {name} of {self.where} has NaN or infinite values.")
        return value.detach().to(torch.float32).contiguous()

    def pop_optional(self, name: str) -> Tensor | None:
        return self.pop(name) if name in self.values else None

    def ignore(self, *names: str) -> None:
        self._used.update(names)

    def check_empty(self) -> None:
        """Check that all tensors were read, because an unknown one may change the layer's output. Raises UserError if a
        tensor was not read."""
        unread = sorted(self.values.keys() - self._used)
        if unread:
            raise UserError(f"Unknown tensors in {self.where}: {', '.join(unread)}.")


InputPlace = Literal["mlp-input", "normalized"]
OutputPlace = Literal["mlp-output", "added"]
"""mlp-output: the MLP's output. added: what the block adds to the residual stream, after a norm if it has one."""

_INPUTS: dict[str, InputPlace] = {
    "mlp.hook_in": "mlp-input",
    "ln2.hook_out": "mlp-input",
    "ln2.hook_normalized": "normalized",
}
_OUTPUTS: dict[str, OutputPlace] = {"mlp.hook_out": "mlp-output", "hook_mlp_out": "added", "mlp": "mlp-output"}
_INPUT_NORMS = ("post_attention_layernorm", "pre_feedforward_layernorm", "ln_2")
"""Modules of Hugging Face models that can be the norm before an MLP; their output is the MLP's input."""
_OF_HUGGING_FACE = re.compile(r"(?:^|\.)(?:layers|h)\.(?P<layer>\d+)\.(?P<place>\w+)$")
_BLOCK = re.compile(r"^blocks\.(?P<layer>\d+|\{layer\})\.(?P<place>.+)$")
_MODULE = re.compile(r"(?:^|\.)(?P<layer>\d+)\.(?:mlp|feed_forward|ffn|ff)$")


def split_hook(hook: str) -> tuple[int | None, str]:
    """Split a name such as ``blocks.3.hook_mlp_out`` or ``model.layers.3.mlp`` into block index, if any, and place."""
    match = _BLOCK.match(hook) or _OF_HUGGING_FACE.search(hook)
    if match is None:
        return None, hook
    return (int(match["layer"]) if match["layer"].isdigit() else None), match["place"]


def input_place(hook: str) -> InputPlace:
    """Return the input that a hook stands for. Raises UserError if the hook is not an input of an MLP."""
    place = split_hook(hook)[1]
    if place in _INPUT_NORMS:
        return "mlp-input"
    if place not in _INPUTS:
        names = ", ".join((*_INPUTS, *_INPUT_NORMS))
        raise UserError(f"Unsupported input hook: {hook}. A layer must read the MLP's input: {names}.")
    return _INPUTS[place]


def input_norm(hook: str) -> str | None:
    """Return the name of the norm whose output a hook stands for; None for hooks that name no module."""
    place = split_hook(hook)[1]
    return place if place in _INPUT_NORMS else None


def output_place(hook: str) -> OutputPlace:
    """Return the output that a hook stands for. Raises UserError if the hook is not an output of an MLP."""
    place = split_hook(hook)[1]
    if place not in _OUTPUTS:
        raise UserError(f"Unsupported output hook: {hook}. A layer must write the MLP's output: {', '.join(_OUTPUTS)}.")
    return _OUTPUTS[place]


def layer_of_module(name: str) -> int | None:
    """Return the block index in the name of an MLP module such as ``layers.3.mlp``; None for other modules."""
    match = _MODULE.search(name)
    return int(match["layer"]) if match else None


def transcoder_tensors(run: Run, format: str, names: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the weights of a transcoder or autoencoder under the names of a format, as for ``SourceTensors.under``.
    Raises UserError if the layer is of another kind."""
    if not isinstance(run.layer, Transcoder):
        raise UserError(
            f"The experts of '{run.name}' ({run.layer.method}) are matrices, which the format {format} cannot hold. "
            "Use --format=saelens."
        )
    return {
        names[ours].removesuffix(".T"): (value.T if names[ours].endswith(".T") else value).contiguous()
        for ours, value in run.layer.state_dict().items()
    }
