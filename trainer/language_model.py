"""A Hugging Face causal language model: load it, find the MLP of a block, watch it, stand in for it, put it back.

How an MLP is found, for any architecture:

1. The blocks are the ``ModuleList`` whose length is the config's number of hidden layers (``transformer.h`` in GPT-2,
   ``gpt_neox.layers`` in Pythia, ``model.layers`` in Llama, Qwen, Gemma, Phi, ``model.decoder.layers`` in OPT).
2. A block's MLP is its child named ``mlp``, ``feed_forward``, ``ffn`` or ``ff``; where the two matrices hang on the
   block itself, as in OPT, the MLP runs from ``fc1`` to ``fc2``.
3. Its matrices are the linear modules in it: the last one writes the output, those before read the input. Two readers,
   or one twice as wide as what the writer reads, make a gated linear unit.

The input and output are the module's own, as they are: nothing is folded or centred.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.pytorch_utils import Conv1D

from trainer import few_rows
from trainer.config import ACTIVATION_NAMES, Activation, Encoder
from trainer.errors import UserError
from trainer.layers.sparse import SparseLayer
from trainer.loading import choose_device, load_module
from trainer.stand_ins import Mlp, StandIn, mount
from trainer.tokens import load_tokenizer

MLP_NAMES = ("mlp", "feed_forward", "ffn", "ff")


class Capture(NamedTuple):
    """What goes in and out of an MLP: token by token, in the order of the input."""

    input_TI: Tensor
    output_TO: Tensor

    def read_by(self, layer: SparseLayer) -> Tensor:
        """What ``layer`` is given: the input, or to an autoencoder the output."""
        return self.output_TO if layer.reads == "mlp-output" else self.input_TI


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


class _StopForward(Exception):
    """Ends a forward pass; nothing is wrong."""


class LanguageModel:
    """A causal language model with its tokenizer, on one device."""

    def __init__(self, module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str) -> None:
        self.module = module.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.source = source
        few_rows.turn(module)
        self._blocks = _find_blocks(module, self.num_layers)
        self._splits: dict[int, bool] = {}
        self.single_texts: dict[int, str] = {}
        """Token id -> its text in the middle of a text; filled as tokens are met."""

    @classmethod
    def load(cls, source: str, device: str = "auto", dtype: torch.dtype | None = None) -> LanguageModel:
        """Load by hub name or from a folder. Remote code and pickled weights are refused.

        Args:
            source: hub name (``openai-community/gpt2``) or folder.
            device: ``auto`` takes a GPU where there is one.
            dtype: by default bfloat16 on a GPU and float32 elsewhere.

        Raises:
            UserError: it does not exist, cannot be downloaded, is damaged, or is no causal language model.
        """
        chosen = choose_device(device)
        kind = dtype or (torch.bfloat16 if chosen.type == "cuda" else torch.float32)
        return cls(load_module(source, kind).to(chosen), load_tokenizer(source), source)  # type: ignore[arg-type]

    @property
    def config(self) -> Any:
        """The Hugging Face config of the text part."""
        return self.module.config.get_text_config()

    @property
    def num_layers(self) -> int:
        """Blocks of the language model."""
        return int(self.config.num_hidden_layers)

    @property
    def max_tokens(self) -> int:
        """The longest text that it was made for, in tokens."""
        limits = [getattr(self.config, name, None) for name in ("max_position_embeddings", "n_positions")]
        return next((int(limit) for limit in limits if limit), 2048)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        device: torch.device = self.module.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""
        dtype: torch.dtype = self.module.dtype
        return dtype

    @torch.no_grad()
    def logits(self, input_ids_BT: Tensor) -> Tensor:
        """Next-token logits [B, T, V] in float32."""
        logits_BTV: Tensor = self.module(input_ids=input_ids_BT.to(self.device), use_cache=False).logits
        return logits_BTV.float()

    def capture(self, layer: int, input_ids_BT: Tensor) -> Capture:
        """Input [T, I] and output [T, O] of a layer's MLP, B x T tokens in order. Nothing after the layer is run."""
        return self.captures([layer], input_ids_BT)[layer]

    @torch.no_grad()
    def captures(self, layers: Sequence[int], input_ids_BT: Tensor) -> dict[int, Capture]:
        """``capture`` of several layers in one pass, which ends behind the last of them."""
        seen: dict[int, Capture] = {}

        def watch(layer: int, x: Tensor, mlp: Mlp) -> Tensor:
            output = mlp()
            seen[layer] = Capture(*(value.reshape(-1, value.shape[-1]) for value in (x, output)))
            if layer == max(layers):
                raise _StopForward
            return output

        with self.stand_in({layer: partial(watch, layer) for layer in layers}), suppress(_StopForward):
            self.module.base_model(input_ids=input_ids_BT.to(self.device), use_cache=False)
        return seen

    @torch.inference_mode()
    def mlp_inputs(self, layers: Sequence[int], input_ids_BT: Tensor) -> dict[int, Tensor]:
        """Input [T, I] of each layer's MLP, B x T tokens in order. Of the last, not even the MLP is run."""
        seen: dict[int, Tensor] = {}

        def watch(layer: int, x: Tensor, mlp: Mlp) -> Tensor:
            seen[layer] = x.reshape(-1, x.shape[-1])
            if layer == max(layers):
                raise _StopForward
            return mlp()

        with self.stand_in({layer: partial(watch, layer) for layer in layers}), suppress(_StopForward):
            self.module.base_model(input_ids=input_ids_BT.to(self.device), use_cache=False)
        return seen

    @torch.no_grad()
    def splits(self, layer: int) -> bool:
        """Whether one row may become two at a layer's MLP, as the blocks of most architectures let it by broadcasting.

        Found out by trying, once for each layer.
        """
        if layer not in self._splits:
            ids_1T = torch.tensor([[1, 2, 3]], device=self.device)
            whole_TV = self.logits(ids_1T)[0]
            with self.stand_in({layer: lambda _x, mlp: mlp().repeat(2, 1, 1)}):
                try:
                    split_RTV = self.logits(ids_1T)
                except (RuntimeError, ValueError):
                    split_RTV = whole_TV.unsqueeze(0)
            self._splits[layer] = len(split_RTV) == 2 and all(
                torch.allclose(row_TV, whole_TV, rtol=1e-3, atol=1e-2) for row_TV in split_RTV
            )
        return self._splits[layer]

    @torch.no_grad()
    def last_residual(self, input_ids_BT: Tensor) -> Tensor:
        """The residual stream behind the last block, [B, T, width]: what final norm and unembedding read."""
        seen: list[Tensor] = []

        def watch(_block: nn.Module, _inputs: Any, output: Any) -> None:
            seen.append(_hidden(output))

        handle = self._blocks[-1].register_forward_hook(watch)
        try:
            self.module.base_model(input_ids=input_ids_BT.to(self.device), use_cache=False)
        finally:
            handle.remove()
        return seen[0]

    @torch.no_grad()
    def logits_of(self, residual_RW: Tensor) -> Tensor:
        """Logits [R, V] in float32 that final norm and unembedding make of residual streams.

        Both are reached by letting one token a row go through the language model and changing what the last block
        gives, so nothing need be known of where an architecture keeps them.
        """

        def put_in(_block: nn.Module, _inputs: Any, output: Any) -> Any:
            given = residual_RW.unsqueeze(1)
            return (given, *output[1:]) if isinstance(output, tuple) else given

        handle = self._blocks[-1].register_forward_hook(put_in)
        try:
            return self.logits(torch.zeros(len(residual_RW), 1, dtype=torch.int64))[:, 0]
        finally:
            handle.remove()

    @contextmanager
    def stand_in(self, stand_ins: Mapping[int, StandIn]) -> Iterator[None]:
        """Let functions answer for the MLPs of some layers; the originals are put back on leaving, whatever happens."""
        with ExitStack() as stack:
            for layer, stand_in in stand_ins.items():
                mount(self._block(layer), self._mlp(layer), stand_in, stack)
            yield

    @contextmanager
    def replace(self, layers: Mapping[int, SparseLayer]) -> Iterator[None]:
        """Put sparse layers in the place of MLPs, and the originals back, exactly, on leaving."""
        with self.stand_in({index: replacement(layer) for index, layer in layers.items()}):
            yield

    def mlp_shape(self, layer: int) -> MlpShape:
        """Widths, activation and kind of a layer's MLP."""
        readers, writer = self._matrices(layer)
        hidden = _weight(writer).shape[1]
        gated = len(readers) == 2 or _weight(readers[0]).shape[0] == 2 * hidden
        return MlpShape(
            input_width=_weight(readers[0]).shape[1],
            hidden_width=hidden,
            output_width=_weight(writer).shape[0],
            activation=_activation(self.config),
            encoder="glu" if gated else "mlp",
        )

    def encoder_weights(self, layer: int) -> EncoderWeights:
        """The input weights of a layer's MLP, for a layer that starts from them."""
        readers, writer = self._matrices(layer)
        pairs = [(_weight(reader), _bias(reader)) for reader in readers]
        hidden = _weight(writer).shape[1]
        if len(pairs) == 1 and pairs[0][0].shape[0] == 2 * hidden:
            (weight, bias) = pairs[0]
            pairs = [(weight[:hidden], bias[:hidden]), (weight[hidden:], bias[hidden:])]
        gate = pairs[0] if len(pairs) == 2 else (None, None)
        return EncoderWeights(*pairs[-1], *gate)

    def decoder_weight(self, layer: int) -> Tensor:
        """The output weights [O, H] of a layer's MLP."""
        return _weight(self._matrices(layer)[1])

    def hidden_reader(self, layer: int) -> nn.Module:
        """The linear module of a layer's MLP that reads its neurons and writes its output."""
        return self._matrices(layer)[1]

    def _block(self, layer: int) -> nn.Module:
        if not 0 <= layer < self.num_layers:
            raise UserError(f"{self.source} has layers 0 to {self.num_layers - 1}; there is no layer {layer}.")
        return self._blocks[layer]

    def _mlp(self, layer: int) -> tuple[str, str]:
        """Names of the first and last module of a block's MLP; the same where it is one module."""
        block = self._block(layer)
        names = [name for name, _ in block.named_children()]
        for name in MLP_NAMES:
            if name in names:
                return name, name
        if {"fc1", "fc2"} <= set(names):
            return "fc1", "fc2"
        raise UserError(
            f"No MLP was found in layer {layer} of {self.source}: it holds {', '.join(names)}; "
            f"one of {', '.join(MLP_NAMES)} or fc1 and fc2 is needed."
        )

    def _matrices(self, layer: int) -> tuple[list[nn.Module], nn.Module]:
        """The linear modules that read the MLP's input (a GLU's gate first) and the one that writes its output."""
        block = self._block(layer)
        names = self._mlp(layer)
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


def replacement(layer: SparseLayer) -> StandIn:
    """A stand-in that answers with ``layer`` alone."""

    def answer(x: Tensor, mlp: Mlp) -> Tensor:
        read = mlp() if layer.reads == "mlp-output" else x
        output_TO: Tensor = layer(read.reshape(-1, read.shape[-1]).float()).output_TO
        return output_TO.to(x.dtype).reshape(*x.shape[:-1], -1)

    return answer


def _hidden(output: Any) -> Tensor:
    """The hidden state that a block gives, by itself or first in a tuple."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def _find_blocks(module: PreTrainedModel, count: int) -> nn.ModuleList:
    for candidate in module.modules():
        if isinstance(candidate, nn.ModuleList) and len(candidate) == count:
            return candidate
    raise UserError(f"No list of {count} blocks was found in a {type(module).__name__}; it cannot be used here.")


def _weight(module: nn.Module) -> Tensor:
    """[out, in], also of GPT-2's Conv1D, which keeps its transpose."""
    weight: Tensor = module.weight.detach()  # type: ignore[operator]
    return weight.T if isinstance(module, Conv1D) else weight


def _bias(module: nn.Module) -> Tensor:
    bias = getattr(module, "bias", None)
    return _weight(module).new_zeros(_weight(module).shape[0]) if bias is None else bias.detach()


def _activation(config: Any) -> Activation:
    """The config's activation; one that we do not offer is approximated by GELU, which any MxD can be fitted with."""
    names = [getattr(config, name, None) for name in ("hidden_activation", "hidden_act", "activation_function")]
    return ACTIVATION_NAMES.get(next((name for name in names if isinstance(name, str)), ""), "gelu")
