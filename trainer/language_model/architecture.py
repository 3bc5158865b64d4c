"""Location, shape and weights of the MLP of a block, in any architecture, with or without loaded weights.

1. The blocks are the ``ModuleList`` in the text decoder whose length is the config's number of hidden layers
   (``transformer.h`` in GPT-2, ``gpt_neox.layers`` in Pythia, ``model.layers`` in Llama, Qwen, Gemma, Phi,
   ``model.decoder.layers`` in OPT). Vision and audio towers are not searched.
2. A block's MLP is its child named ``mlp``, ``feed_forward``, ``ffn`` or ``ff``. If the block itself holds the two
   matrices, as in OPT, the MLP extends from ``fc1`` to ``fc2``.
3. The MLP's matrices are its linear modules: the last one is the down projection, the others read the input. Two input
   matrices, or one with twice the hidden width, form a gated linear unit. An MLP with any other matrix, such as the
   router and the experts of a mixture of experts, is rejected.

Shapes: H hidden width, I input width, O output width.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from mxd.trainer.config.layer import Activation, Encoder
from mxd.trainer.errors import UsageWarning, UserError
from mxd.trainer.language_model.loading import find_blocks, is_shard, weights_at_hand

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MAX_POSITION_OFFSET = 8
"""Rows that an embedding of positions may have beyond them, such as OPT's two."""
POSITION_LIMITS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len")
"""Names of the context length in configs."""
MLP_NAMES = ("mlp", "feed_forward", "ffn", "ff")
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
}
"""Activation name in a Hugging Face config -> activation of a sparse layer."""
ACTIVATION_NAMES = ("hidden_activation", "hidden_act", "activation_function")


@dataclass(frozen=True)
class MlpShape:
    """Properties of an MLP that a sparse layer in its place shares."""

    input_width: int
    hidden_width: int
    output_width: int
    activation: Activation
    encoder: Encoder


class EncoderWeights(NamedTuple):
    """Input weights of an MLP, each [H, I] or [H]; the gate's are None unless it is a gated linear unit."""

    weight_HI: Tensor
    bias_H: Tensor
    gate_weight_HI: Tensor | None
    gate_bias_H: Tensor | None


class Architecture:
    """The blocks of a language model and the MLPs in them. The module may be on the meta device."""

    def __init__(self, module: PreTrainedModel, source: str) -> None:
        self.config: Any = module.config.get_text_config()
        self.source = source
        self.blocks = find_blocks(module, getattr(self.config, "num_hidden_layers", None))
        embedding: Any = module.get_input_embeddings()
        self.vocabulary_size: int = embedding.weight.shape[0]
        """Rows of the input embedding: token ids are below it. Tokenizers may have gaps, and fewer or more tokens."""
        limits = (getattr(self.config, name, None) for name in POSITION_LIMITS)
        self._stated_limit = next((int(limit) for limit in limits if limit and limit > 0), None)
        self._has_position_table = self._stated_limit is not None and _has_position_table(module, self._stated_limit)

    @property
    def max_tokens(self) -> int:
        """Context length in tokens; 2,048 if the config states none."""
        return self._stated_limit or 2048

    def check_context_length(self, tokens: int) -> None:
        """Check that the language model can read sequences of ``tokens`` tokens. Rotary and relative positions go
        beyond the context length. They are untrained there, which gives a warning. Raises UserError if the language
        model has one embedding per position, and fewer than ``tokens``."""
        if self._stated_limit is None or tokens <= self._stated_limit:
            return
        excess = (
            f"Sequences of {tokens:,} tokens exceed the context length of {self.source}, {self.max_tokens:,} tokens."
        )
        if self._has_position_table:
            raise UserError(f"{excess} It has no embeddings for further positions. Use a shorter context length.")
        warnings.warn(f"{excess} It was not trained on further positions.", UsageWarning, stacklevel=2)

    def block(self, layer: int) -> nn.Module:
        """The block of a layer. Raises UserError if the language model has no such layer."""
        if not 0 <= layer < len(self.blocks):
            raise UserError(f"There is no layer {layer}. {self.source} has layers 0 to {len(self.blocks) - 1}.")
        return self.blocks[layer]

    def mlp_names(self, layer: int) -> tuple[str, str]:
        """Names of the first and last module of a layer's MLP in its block; equal if the MLP is one module."""
        names = [name for name, _ in self.block(layer).named_children()]
        for name in MLP_NAMES:
            if name in names:
                return name, name
        if {"fc1", "fc2"} <= set(names):
            return "fc1", "fc2"
        raise UserError(
            f"No MLP was found in layer {layer} of {self.source}, which holds {', '.join(names)}. "
            f"Supported names: {', '.join(MLP_NAMES)}, or fc1 and fc2."
        )

    def matrices(self, layer: int) -> tuple[list[nn.Module], nn.Module]:
        """Linear modules of a layer's MLP: those that read its input (a GLU's gate first), and the down projection.
        Raises UserError if the MLP is a mixture of experts, has other matrices, or needs more than its input."""
        block, (first, last) = self.block(layer), self.mlp_names(layer)
        whole = dict(getattr(block, first).named_modules())
        modules = whole if first == last else {name: getattr(block, name) for name in (first, last)}
        linear = {name: module for name, module in modules.items() if isinstance(module, nn.Linear | Conv1D)}
        supported = "Supported are two (an MLP) and three (a gated linear unit), and no other weights."
        cannot = f"The MLP of layer {layer} of {self.source} cannot be replaced:"
        if not 2 <= len(linear) <= 3:
            raise UserError(f"{cannot} it has {len(linear)} linear modules. {supported}")
        _self, *parameters = inspect.signature(type(getattr(block, first)).forward).parameters.values()
        positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        arguments = [each.name for each in positional if each.default is each.empty] or [parameters[0].name]
        if len(arguments) != 1:
            raise UserError(
                f"{cannot} it needs {len(arguments)} inputs ({', '.join(arguments)}). Supported are MLPs whose only "
                "input is the activation."
            )
        weights = {name: module.parameters(recurse=False) for name, module in modules.items() if name not in linear}
        others = [name for name, parameters in weights.items() if any(each.dim() > 1 for each in parameters)]
        if others:
            raise UserError(
                f"{cannot} like a mixture of experts, it has other weights: those of "
                f"{', '.join(name or type(modules[name]).__name__ for name in others)}. {supported}"
            )
        width = _shape(linear[next(iter(linear))])[1]
        children = [(name, child) for name, child in block.named_children() if name not in (first, last)]
        experts = [name for name, child in children if _has_experts(child, width)]
        if experts:
            raise UserError(
                f"{cannot} the block also has experts ({', '.join(experts)}), whose outputs are added to its own. "
                "Supported are blocks whose only MLP is this one."
            )
        *inputs, down = linear
        inputs.sort(key=lambda name: "gate" not in name)
        widths = {_shape(linear[name]) for name in inputs}
        hidden = _shape(linear[down])[1]
        if len(widths) != 1 or next(iter(widths))[0] not in ((hidden,) if len(inputs) == 2 else (hidden, 2 * hidden)):
            shapes = ", ".join(f"{name} {list(_shape(module))}" for name, module in linear.items())
            raise UserError(f"{cannot} its linear modules are not those of an MLP or a gated linear unit: {shapes}.")
        return [linear[name] for name in inputs], linear[down]

    def mlp_shape(self, layer: int) -> MlpShape:
        inputs, down = self.matrices(layer)
        (input_rows, input_width), (output_width, hidden_width) = _shape(inputs[0]), _shape(down)
        names = (getattr(self.config, name, None) for name in ACTIVATION_NAMES)
        return MlpShape(
            input_width=input_width,
            hidden_width=hidden_width,
            output_width=output_width,
            # GELU for an unknown one, since any activation can be trained to fit.
            activation=ACTIVATIONS.get(next((name for name in names if isinstance(name, str)), ""), "gelu"),
            encoder="glu" if len(inputs) == 2 or input_rows == 2 * hidden_width else "mlp",
        )

    def encoder_weights(self, layer: int) -> EncoderWeights:
        inputs, down = self.matrices(layer)
        pairs = [_weight_and_bias(module) for module in inputs]
        hidden = _shape(down)[1]
        if len(pairs) == 1 and pairs[0][0].shape[0] == 2 * hidden:
            (weight, bias) = pairs[0]
            pairs = [(weight[:hidden], bias[:hidden]), (weight[hidden:], bias[hidden:])]
        gate = pairs[0] if len(pairs) == 2 else (None, None)
        return EncoderWeights(*pairs[-1], *gate)

    def decoder_weight(self, layer: int) -> Tensor:
        return _weight_and_bias(self.matrices(layer)[1])[0]


def _has_position_table(module: PreTrainedModel, positions: int) -> bool:
    """True if the language model looks positions up: in an embedding, which may have an offset, or in a buffer."""
    words = module.get_input_embeddings()
    tables = [part for part in module.modules() if isinstance(part, nn.Embedding) and part is not words]
    if any(positions <= table.num_embeddings <= positions + _MAX_POSITION_OFFSET for table in tables):
        return True
    values = chain.from_iterable(vars(part).values() for part in module.modules())
    tensors = chain(module.buffers(), (value for value in values if isinstance(value, Tensor)))
    return any(tensor.dim() > 1 and positions in tensor.shape for tensor in tensors)


def _has_experts(module: nn.Module, width: int) -> bool:
    """True if a module holds several matrices that read or write vectors of a width: stacked, or in a list."""
    for part in module.modules():
        matrices = (parameter.shape for parameter in part.parameters(recurse=False) if parameter.dim() == 3)
        if not isinstance(part, nn.Conv1d) and any(width in shape[1:] for shape in matrices):
            return True
        if isinstance(part, nn.ModuleList):
            lists = [[it for it in one.modules() if isinstance(it, nn.Linear)] for one in part]
            if sum(any(width in _shape(it) for it in linear) for linear in lists) > 1:
                return True
    return False


def _shape(module: nn.Module) -> tuple[int, int]:
    """(out, in); GPT-2's Conv1D stores the transpose."""
    rows, columns = module.weight.shape  # type: ignore[misc]
    return (columns, rows) if isinstance(module, Conv1D) else (rows, columns)


def _weight_and_bias(module: nn.Module) -> tuple[Tensor, Tensor]:
    """[out, in] and [out]; zeros if there is no bias."""
    with weights_at_hand(module):
        weight, bias = (
            None if it is None else (it.full_tensor() if is_shard(it) else it).detach()  # gathered from all processes
            for it in (getattr(module, name, None) for name in ("weight", "bias"))
        )
        assert weight is not None
        if not weight.is_floating_point() or weight.dim() != 2:
            raise UserError(
                f"The MLP's weights are quantised ({type(module).__name__}), so they cannot be copied. Use the "
                "original language model."
            )
        weight_OI = weight.T if isinstance(module, Conv1D) else weight
        return weight_OI, weight_OI.new_zeros(weight_OI.shape[0]) if bias is None else bias
