"""Names of places in a language model, as other programs write them, and what they mean for a layer in an MLP's place.

TransformerLens calls the norm in front of an MLP ``ln2``. ``hook_normalized`` is, where its weight and bias have been
folded into the MLP, what it gives before them; where they have not, a LayerNorm's is taken after them and an RMSNorm's
before its weight. ``hook_mlp_out`` is the MLP's output; in architectures with a norm behind the MLP it is that norm's.
"""

from __future__ import annotations

import re
from typing import Literal

from trainer.errors import UserError

InputPlace = Literal["mlp-input", "normalized"]
OutputPlace = Literal["mlp-output", "added"]
"""mlp-output: of the MLP itself. added: what the block adds to the residual stream, behind a norm where it has one."""

_INPUTS: dict[str, InputPlace] = {"mlp.hook_in": "mlp-input", "ln2.hook_normalized": "normalized"}
_OUTPUTS: dict[str, OutputPlace] = {"mlp.hook_out": "mlp-output", "hook_mlp_out": "added"}
_BLOCK = re.compile(r"^blocks\.(?P<layer>\d+|\{layer\})\.(?P<place>.+)$")
_MODULE = re.compile(r"(?:^|\.)(?P<layer>\d+)\.(?:mlp|feed_forward|ffn|ff)$")


def split(hook: str) -> tuple[int | None, str]:
    """The number of the block, where a name has one, and the place in it: ``blocks.3.hook_mlp_out``."""
    match = _BLOCK.match(hook)
    if match is None:
        return None, hook
    return (int(match["layer"]) if match["layer"].isdigit() else None), match["place"]


def input_place(hook: str) -> InputPlace:
    """What a layer reads at a hook.

    Raises:
        UserError: it is no place that a layer in an MLP's stead is given.
    """
    place = split(hook)[1]
    if place not in _INPUTS:
        raise UserError(
            f"The layer reads {hook}; only those that read what the MLP reads ({', '.join(_INPUTS)}) can stand in for "
            "it."
        )
    return _INPUTS[place]


def output_place(hook: str) -> OutputPlace:
    """What a layer writes at a hook.

    Raises:
        UserError: it is not what an MLP writes.
    """
    place = split(hook)[1]
    if place not in _OUTPUTS:
        raise UserError(
            f"The layer writes {hook}; only those that write what the MLP writes ({', '.join(_OUTPUTS)}) can stand in "
            "for it."
        )
    return _OUTPUTS[place]


def layer_of_module(name: str) -> int | None:
    """The block's number in the name of an MLP's module, such as ``layers.3.mlp``; None of any other."""
    match = _MODULE.search(name)
    return int(match["layer"]) if match else None
