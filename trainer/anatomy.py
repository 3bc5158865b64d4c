"""Where the MLP of a block is, in any architecture, and what it is made of; with or without weights.

1. The blocks are the ``ModuleList`` whose length is the config's number of hidden layers (``transformer.h`` in GPT-2,
   ``gpt_neox.layers`` in Pythia, ``model.layers`` in Llama, Qwen, Gemma, Phi, ``model.decoder.layers`` in OPT).
2. A block's MLP is its child named ``mlp``, ``feed_forward``, ``ffn`` or ``ff``; where the two matrices hang on the
   block itself, as in OPT, the MLP runs from ``fc1`` to ``fc2``.
3. Its matrices are the linear modules in it: the last one writes the output, those before read the input. Two readers,
   or one twice as wide as what the writer reads, make a gated linear unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from trainer.config import Activation, Encoder
from trainer.errors import UserError
from trainer.loading import weights_at_hand

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MLP_NAMES = ("mlp", "feed_forward", "ffn", "ff")
ACTIVATION_NAMES: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
}
"""How the configs of language models call each activation."""


@dataclass(frozen=True)
class MlpShape:
    """What a sparse layer must know of the MLP that it replaces."""

    input_width: int
    hidden_width: int
    output_width: int
    activation: Activation
    encoder: Encoder


class EncoderWeights(NamedTuple):
    """An MLP's own input weights, each [H, I] or [H]; the gate's are None where it is no gated linear unit."""

    weight_HI: Tensor
    bias_H: Tensor
    gate_weight_HI: Tensor | None
    gate_bias_H: Tensor | None


class Anatomy:
    """The blocks of a language model and the MLPs in them. A module on the meta device, without weights, will do."""

    def __init__(self, module: PreTrainedModel, source: str) -> None:
        self.config: Any = module.config.get_text_config()
        """The Hugging Face config of the text part."""
        self.source = source
        self.blocks = _find_blocks(module, int(self.config.num_hidden_layers))

    def block(self, layer: int) -> nn.Module:
        """The block with number ``layer``.

        Raises:
            UserError: there is none.
        """
        if not 0 <= layer < len(self.blocks):
            raise UserError(f"{self.source} has layers 0 to {len(self.blocks) - 1}; there is no layer {layer}.")
        return self.blocks[layer]

    def mlp_names(self, layer: int) -> tuple[str, str]:
        """Names of the first and last module of a block's MLP; the same where it is one module."""
        names = [name for name, _ in self.block(layer).named_children()]
        for name in MLP_NAMES:
            if name in names:
                return name, name
        if {"fc1", "fc2"} <= set(names):
            return "fc1", "fc2"
        raise UserError(
            f"No MLP was found in layer {layer} of {self.source}: it holds {', '.join(names)}; "
            f"one of {', '.join(MLP_NAMES)} or fc1 and fc2 is needed."
        )

    def matrices(self, layer: int) -> tuple[list[nn.Module], nn.Module]:
        """The linear modules that read the MLP's input (a GLU's gate first) and the one that writes its output."""
        block = self.block(layer)
        names = self.mlp_names(layer)
        found = (
            dict(getattr(block, names[0]).named_modules())
            if names[0] == names[1]
            else {name: getattr(block, name) for name in names}
        )
        linear = {name: module for name, module in found.items() if isinstance(module, nn.Linear | Conv1D)}
        if not 2 <= len(linear) <= 3:
            raise UserError(
                f"The MLP of layer {layer} of {self.source} has {len(linear)} linear modules; "
                "two (an MLP) or three (a gated linear unit) are needed, so this one cannot be replaced."
            )
        *readers, writer = linear
        readers.sort(key=lambda name: "gate" not in name)
        return [linear[name] for name in readers], linear[writer]

    def mlp_shape(self, layer: int) -> MlpShape:
        """Widths, activation and kind of a layer's MLP."""
        readers, writer = self.matrices(layer)
        reads, writes = _shape(readers[0]), _shape(writer)
        return MlpShape(
            input_width=reads[1],
            hidden_width=writes[1],
            output_width=writes[0],
            activation=_activation(self.config),
            encoder="glu" if len(readers) == 2 or reads[0] == 2 * writes[1] else "mlp",
        )

    def encoder_weights(self, layer: int) -> EncoderWeights:
        """The input weights of a layer's MLP, for a layer that starts from them."""
        readers, writer = self.matrices(layer)
        pairs = [_weight_and_bias(reader) for reader in readers]
        hidden = _shape(writer)[1]
        if len(pairs) == 1 and pairs[0][0].shape[0] == 2 * hidden:
            (weight, bias) = pairs[0]
            pairs = [(weight[:hidden], bias[:hidden]), (weight[hidden:], bias[hidden:])]
        gate = pairs[0] if len(pairs) == 2 else (None, None)
        return EncoderWeights(*pairs[-1], *gate)

    def decoder_weight(self, layer: int) -> Tensor:
        """The output weights [O, H] of a layer's MLP."""
        return _weight_and_bias(self.matrices(layer)[1])[0]


def _find_blocks(module: PreTrainedModel, count: int) -> nn.ModuleList:
    for candidate in module.modules():
        if isinstance(candidate, nn.ModuleList) and len(candidate) == count:
            return candidate
    raise UserError(f"No list of {count} blocks was found in a {type(module).__name__}; it cannot be used here.")


def _shape(module: nn.Module) -> tuple[int, int]:
    """(out, in), also of GPT-2's Conv1D, which keeps its transpose."""
    rows, columns = module.weight.shape  # type: ignore[misc]
    return (columns, rows) if isinstance(module, Conv1D) else (rows, columns)


def _weight_and_bias(module: nn.Module) -> tuple[Tensor, Tensor]:
    """[out, in] and [out]; zeros where there is no bias."""
    with weights_at_hand(module):
        weight: Tensor = module.weight.detach()  # type: ignore[operator]
        weight_OI = weight.T if isinstance(module, Conv1D) else weight
        bias = getattr(module, "bias", None)
        return weight_OI, weight_OI.new_zeros(weight_OI.shape[0]) if bias is None else bias.detach()


def _activation(config: Any) -> Activation:
    """The config's activation; one that we do not offer is approximated by GELU, which any MxD can be fitted with."""
    names = [getattr(config, name, None) for name in ("hidden_activation", "hidden_act", "activation_function")]
    return ACTIVATION_NAMES.get(next((name for name in names if isinstance(name, str)), ""), "gelu")
