"""A Hugging Face causal language model: load it, watch the MLP of a block, stand in for it, put it back.

The input and output are the module's own, as they are: nothing is folded or centred.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from trainer import few_rows
from trainer.anatomy import Anatomy, EncoderWeights, MlpShape
from trainer.config import SPREAD
from trainer.layers.sparse import SparseLayer
from trainer.loading import (
    DeviceMap,
    choose_device,
    choose_dtype,
    load_module,
    load_spread,
    runs_on,
)
from trainer.parting import parted
from trainer.stand_ins import Mlp, StandIn, in_blocks, mount
from trainer.tokens import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Capture(NamedTuple):
    """What goes in and out of an MLP: token by token, in the order of the input."""

    input_TI: Tensor
    output_TO: Tensor

    @classmethod
    def spanning(cls, captured: Mapping[int, Capture], layers: Sequence[int]) -> Capture:
        """The input of the first of some layers, and what all of them write, side by side."""
        first, *others = (captured[layer] for layer in layers)
        if not others:
            return first
        written = [other.output_TO.to(first.output_TO.device) for other in others]
        return cls(first.input_TI, torch.cat([first.output_TO, *written], dim=1))

    def read_by(self, layer: SparseLayer) -> Tensor:
        """What ``layer`` is given: the input, or to an autoencoder the output."""
        return self.output_TO if layer.reads == "mlp-output" else self.input_TI

    def rows(self, chosen_B: Tensor) -> Capture:
        """Some of the tokens, by their places."""
        places_B = chosen_B.to(self.input_TI.device)  # layers of a spread language model may work elsewhere
        return Capture(self.input_TI[places_B], self.output_TO[places_B])


class _StopForward(Exception):
    """Ends a forward pass; nothing is wrong."""


class LanguageModel:
    """A causal language model with its tokenizer, on one device or spread over several."""

    def __init__(self, module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str) -> None:
        self.module = module.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.source = source
        few_rows.turn(module)
        self.anatomy = Anatomy(module, source)
        self._splits: dict[int, bool] = {}
        self._parts: dict[int, bool] = {}
        self.single_texts: dict[int, str] = {}
        """Token id -> its text in the middle of a text; filled as tokens are met."""

    @classmethod
    def load(cls, source: str, device: str = "auto", dtype: torch.dtype | None = None) -> LanguageModel:
        """Load by hub name or from a folder. Remote code and pickled weights are refused.

        Args:
            source: hub name (``openai-community/gpt2``) or folder.
            device: ``auto`` takes a GPU where there is one; ``spread`` takes all there are, evenly, and what they
                cannot hold stays in main memory or on disk.
            dtype: by default bfloat16 on a GPU and float32 elsewhere.

        Raises:
            UserError: it does not exist, cannot be downloaded, is damaged, or is no causal language model.
        """
        chosen = choose_device(device)
        kind = dtype or choose_dtype(chosen)
        if device == SPREAD:
            return cls.spread(source, "auto", kind)
        return cls(load_module(source, kind).to(chosen), load_tokenizer(source), source)  # type: ignore[arg-type]

    @classmethod
    def spread(cls, source: str, device_map: DeviceMap, dtype: torch.dtype) -> LanguageModel:
        """Load with each module where ``device_map`` says, one of these devices working at a time.

        Raises:
            UserError: as ``load``.
        """
        return cls(load_spread(source, dtype, device_map), load_tokenizer(source), source)

    @property
    def config(self) -> Any:
        """The Hugging Face config of the text part."""
        return self.module.config.get_text_config()

    @property
    def max_tokens(self) -> int:
        """The longest text that it was made for, in tokens."""
        limits = [getattr(self.config, name, None) for name in ("max_position_embeddings", "n_positions")]
        return next((int(limit) for limit in limits if limit), 2048)

    @property
    def device(self) -> torch.device:
        """Where it takes token ids and gives logits; that of all its weights unless it is spread."""
        return runs_on(self.module.get_input_embeddings()) or self.module.device

    def device_of(self, layer: int) -> torch.device:
        """Where a layer's MLP works, and what was put in its place has to."""
        return runs_on(self.anatomy.block(layer)) or self.module.device

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
    def parts(self, layer: int) -> bool:
        """Whether a text may become several rows at a block, as in most architectures.

        Found out by trying, once for each block: with padding, and compared with rows that were apart all along.
        """
        if layer not in self._parts:
            rows, ids_2T = [0, 1, 0], torch.tensor([[1, 1, 2, 3], [3, 2, 1, 2]], device=self.device)
            seen_2T = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]], device=self.device)
            apart_3V = self.module(input_ids=ids_2T[rows], attention_mask=seen_2T[rows], use_cache=False).logits[:, -1]
            with parted(self.anatomy.blocks, layer, rows):
                try:
                    found_3V = self.module(input_ids=ids_2T, attention_mask=seen_2T, use_cache=False).logits[:, -1]
                except (RuntimeError, ValueError):
                    found_3V = apart_3V[:0]
            self._parts[layer] = found_3V.shape == apart_3V.shape and torch.allclose(
                found_3V.float(), apart_3V.float(), rtol=1e-3, atol=1e-2
            )
        return self._parts[layer]

    @torch.no_grad()
    def last_residual(self, input_ids_BT: Tensor) -> Tensor:
        """The residual stream behind the last block, [B, T, width]: what final norm and unembedding read."""
        return self.residual(input_ids_BT)

    def residual(self, input_ids_BT: Tensor) -> Tensor:
        """``last_residual``, through which gradients flow where they are recorded."""
        seen: list[Tensor] = []

        def watch(_block: nn.Module, _inputs: Any, output: Any) -> None:
            seen.append(_hidden(output))

        handle = self.anatomy.blocks[-1].register_forward_hook(watch)
        try:
            self.module.base_model(input_ids=input_ids_BT.to(self.device), use_cache=False)
        finally:
            handle.remove()
        return seen[0]

    @torch.no_grad()
    def logits_of(self, residual_RW: Tensor) -> Tensor:
        """Logits [R, V] in float32 that final norm and unembedding make of residual streams."""
        return self.unembed(residual_RW)

    def unembed(self, residual_RW: Tensor) -> Tensor:
        """``logits_of``, through which gradients flow where they are recorded.

        Both are reached by letting one token a row go through the language model and changing what the last block
        gives, so nothing need be known of where an architecture keeps them.
        """

        def put_in(_block: nn.Module, _inputs: Any, output: Any) -> Any:
            given = residual_RW.unsqueeze(1)
            return (given, *output[1:]) if isinstance(output, tuple) else given

        handle = self.anatomy.blocks[-1].register_forward_hook(put_in)
        try:
            ids_R1 = torch.zeros(len(residual_RW), 1, dtype=torch.int64, device=self.device)
            logits_RV: Tensor = self.module(input_ids=ids_R1, use_cache=False).logits[:, 0].float()
            return logits_RV
        finally:
            handle.remove()

    @contextmanager
    def stand_in(self, stand_ins: Mapping[int, StandIn]) -> Iterator[None]:
        """Let functions answer for the MLPs of some layers; the originals are put back on leaving, whatever happens."""
        with ExitStack() as stack:
            for layer, stand_in in stand_ins.items():
                mount(self.anatomy.block(layer), self.anatomy.mlp_names(layer), stand_in, stack)
            yield

    @contextmanager
    def replace(self, layers: Mapping[int, SparseLayer]) -> Iterator[None]:
        """Put sparse layers in the place of MLPs, and the originals back, exactly, on leaving."""
        stand_ins = [replacement(index, layer) for index, layer in layers.items()]
        with self.stand_in({block: answer for each in stand_ins for block, answer in each.items()}):
            yield

    def mlp_shape(self, layer: int) -> MlpShape:
        """Widths, activation and kind of a layer's MLP."""
        return self.anatomy.mlp_shape(layer)

    def encoder_weights(self, layer: int) -> EncoderWeights:
        """The input weights of a layer's MLP, for a layer that starts from them."""
        return self.anatomy.encoder_weights(layer)

    def decoder_weight(self, layer: int) -> Tensor:
        """The output weights [O, H] of a layer's MLP."""
        return self.anatomy.decoder_weight(layer)

    def hidden_reader(self, layer: int) -> nn.Module:
        """The linear module of a layer's MLP that reads its neurons and writes its output."""
        return self.anatomy.matrices(layer)[1]


def replacement(index: int, layer: SparseLayer) -> dict[int, StandIn]:
    """Stand-ins that answer with ``layer`` alone, in the block whose MLP's input it reads and all others that it
    writes."""

    def answer(x: Tensor, mlp: Mlp) -> Tensor:
        read = mlp() if layer.reads == "mlp-output" else x
        output_TO: Tensor = layer(read.reshape(-1, read.shape[-1]).float()).output_TO
        return output_TO.to(x.dtype).reshape(*x.shape[:-1], -1)

    return in_blocks(index, layer.span, answer)


def _hidden(output: Any) -> Tensor:
    """The hidden state that a block gives, by itself or first in a tuple."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden
