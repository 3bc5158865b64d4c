"""The output of an MLP with edits: the MLP's own output, or that of a sparse layer, plus what edits add to it.

Shapes: S distinct texts, B or R rows, T tokens, P = R * T tokens, I input width, O output width, K active experts,
M width of the dense output.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from mxd.trainer.config import SteeringMode
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.layers.base import Routing, SparseLayer


@dataclass(eq=False)
class LayerPass:
    """Outputs of a sparse layer in one forward pass. Each part is computed when it is first used."""

    sparse_layer: SparseLayer
    x_STI: Tensor
    """The layer's input, of any dtype."""
    text_of: Any = ...
    """Index of each row's text, if rows of one text have the same input; by default each row has its own."""

    @cached_property
    def routing(self) -> Routing:
        """Live routing, [P, K]."""
        return Routing(*(self._rows(values_QK) for values_QK in self.sparse_layer.route(self._x_QI)))

    @cached_property
    def dense_PM(self) -> Tensor:
        return self._rows(self.sparse_layer.dense_output(self._x_QI))

    @cached_property
    def mixing_PM(self) -> Tensor:
        return self.sparse_layer.mixing(self.routing)

    @property
    def output_PO(self) -> Tensor:
        return self.sparse_layer.decode_mixed(self.dense_PM, self.mixing_PM)

    def contribution(self, routing: Routing) -> Tensor:
        """Contribution of the experts of another routing of the same tokens to the output, [P, O]."""
        return self.sparse_layer.contribution(self.dense_PM, routing)

    def at(self, positions: Tensor | slice) -> LayerPass:
        return LayerPass(self.sparse_layer, self.x_STI[:1, positions])

    @cached_property
    def _x_QI(self) -> Tensor:
        return like_weights(_flatten(self.x_STI), self.sparse_layer)

    def _rows(self, values_QX: Tensor) -> Tensor:
        values_STX = values_QX.reshape(*self.x_STI.shape[:-1], values_QX.shape[-1])
        return _flatten(values_STX[self.text_of])


@dataclass(eq=False)
class EditedMlp:
    """An MLP function with edits, for one sparse layer."""

    sparse_layer: SparseLayer
    """The layer that edits refer to."""
    added: Callable[[LayerPass], Tensor | None] = lambda _layer_pass: None
    """Addition of the edits to the output, [P, O], or to that of more rows if the pass has one; None for nothing."""
    mode: SteeringMode = "residual"
    """Output that it is added to: that of the MLP (``residual``) or of the sparse layer (``replace``)."""

    def __call__(self, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        """Output [B, T, O], of the dtype and on the device of the MLP's input."""
        reads_output = self.sparse_layer.reads == "mlp-output"
        original = mlp() if self.mode == "residual" or reads_output else None
        layer_pass = LayerPass(self.sparse_layer, original if original is not None and reads_output else x_BTI)
        return self.output(layer_pass, x_BTI, original)

    def output(self, layer_pass: LayerPass, like: Tensor, original_BTO: Tensor | None) -> Tensor:
        """Output [R, T, O] of a pass; the original output is not used in the mode ``replace``."""
        added_PO = self.added(layer_pass)
        if self.mode == "replace":
            output_PO = layer_pass.output_PO if added_PO is None else layer_pass.output_PO + added_PO
            return output_PO.to(like).reshape(-1, *like.shape[1:-1], output_PO.shape[-1])
        assert original_BTO is not None
        if added_PO is None:
            return original_BTO
        # In the precision of the layer's weights, rounded once.
        output_RTO = original_BTO.to(added_PO) + added_PO.reshape(-1, *original_BTO.shape[1:])
        return output_RTO.to(original_BTO)


def like_weights(x_TI: Tensor, sparse_layer: SparseLayer) -> Tensor:
    """Return activations on the device and with the dtype of a layer's weights. Warns, once, if the devices differ."""
    weight = next(sparse_layer.parameters())
    if x_TI.device != weight.device:
        warnings.warn(
            f"The layer is on {weight.device}, the model on {x_TI.device}: activations are copied in every forward "
            "pass. Move the layer with layer.to(model.device).",
            stacklevel=2,
        )
    return x_TI.to(weight.device, weight.dtype)


def _flatten(values_RTX: Tensor) -> Tensor:
    # Not reshape(-1, ...): the dense output of a transcoder without a skip connection has no entries.
    return values_RTX.reshape(values_RTX.shape[:-1].numel(), values_RTX.shape[-1])
