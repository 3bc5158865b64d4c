"""Hook names of other libraries, and the activations they stand for.

TransformerLens calls the norm before an MLP ``ln2``. With folded norms, ``hook_normalized`` is its output before weight
and bias. Without folding, it is the output after them for a LayerNorm and before the weight for an RMSNorm.
``hook_mlp_out`` is the MLP's output, or that of a norm after the MLP in architectures that have one.
"""

from __future__ import annotations

import re
from typing import Literal

from mxd.trainer.errors import UserError

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
    """Return the input that a hook stands for.

    Raises:
        UserError: the hook is not an input of an MLP.
    """
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
    """Return the output that a hook stands for.

    Raises:
        UserError: the hook is not an output of an MLP.
    """
    place = split_hook(hook)[1]
    if place not in _OUTPUTS:
        raise UserError(f"Unsupported output hook: {hook}. A layer must write the MLP's output: {', '.join(_OUTPUTS)}.")
    return _OUTPUTS[place]


def layer_of_module(name: str) -> int | None:
    """Return the block index in the name of an MLP module such as ``layers.3.mlp``; None for other modules."""
    match = _MODULE.search(name)
    return int(match["layer"]) if match else None
