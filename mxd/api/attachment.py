"""A layer inside a Hugging Face model: its activations on a batch, and computing it in place of the MLP.

The model keeps its modules, parameters and hooks: only the ``forward`` of one MLP is replaced, until the handle is
detached.

Shapes: B rows, T tokens, I input width, O output width, N experts, P tokens that are computed, K active experts.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from mxd.api.edits import Edits, GrowingText, edit_plan
from mxd.trainer.config import SteeringMode
from mxd.trainer.errors import UserError
from mxd.trainer.inference.edits import EditPlan, edit_routing
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.mlp_hooks import Mlp, replace_mlp
from mxd.trainer.layers.base import SparseLayer

if TYPE_CHECKING:
    from mxd.api.layer import Layer

MODEL_INPUTS = ("input_ids", "inputs_embeds", "attention_mask", "position_ids", "token_type_ids")
"""Entries of a batch that are passed to the model."""

SUBMODULE = "mxd"
"""Name under which an attached layer is a submodule of its block."""


class LayerFunction:
    """Output of an MLP computed with a layer: the layer's, or the MLP's own plus the difference that edits make."""

    def __init__(self, core: SparseLayer, mode: SteeringMode, plan: EditPlan, text: GrowingText | None) -> None:
        """``text`` tells the positions of the tokens, if the plan depends on them."""
        self.core = core
        self.mode = mode
        self.plan = plan
        self.text = text

    def __call__(self, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        """Output [B, T, O], of the dtype and on the device of the MLP's input."""
        original = mlp() if self.mode == "residual" or self.core.reads == "mlp-output" else None
        inputs = original if self.core.reads == "mlp-output" else x_BTI
        assert inputs is not None
        x_PI = like_weights(inputs.reshape(-1, inputs.shape[-1]), self.core)
        routing, dense_PM = self.core.route(x_PI), self.core.dense_output(x_PI)
        change_PO: Tensor | None = None
        plans, plan_of_P = self._plans(len(x_PI))
        if plans:
            change_PO = self.core.contribution(dense_PM, edit_routing(plans, plan_of_P.to(x_PI.device), routing))
        if self.mode == "replace":
            replaced_PO = self.core.decode(dense_PM, routing)
            output_PO = replaced_PO if change_PO is None else replaced_PO + change_PO
            return output_PO.to(x_BTI).reshape(*x_BTI.shape[:-1], -1)
        assert original is not None
        return original if change_PO is None else original + change_PO.to(original).reshape(original.shape)

    def _plans(self, tokens: int) -> tuple[list[EditPlan], Tensor]:
        """Distinct plans, and the index of each token's plan, [P]."""
        if self.text is not None:
            return self.text.plans(tokens)
        return [self.plan] if self.plan.edits else [], torch.zeros(tokens, dtype=torch.int64)


def like_weights(x_TI: Tensor, core: SparseLayer) -> Tensor:
    """Return activations on the device and with the dtype of a layer's weights."""
    weight = next(core.parameters())
    return x_TI.to(weight.device, weight.dtype)


class Attachment:
    """Handle of a layer that computes inside a model. ``detach`` takes it out; so does leaving a ``with`` block."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def detach(self) -> None:
        """Restore the model exactly. A second call does nothing."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()


def splice(layer: Layer, model: Any, edits: Edits, mode: SteeringMode) -> Attachment:
    """Compute a layer inside ``model`` until the returned handle is detached.

    Raises:
        UserError: the layer does not fit the model, or an edit is invalid.
    """
    stack = ExitStack()
    _splice(layer, model, edits, mode, stack)
    return Attachment(stack)


def attach(layer: Layer, model: Any, edits: Edits, mode: SteeringMode) -> Attachment:
    """As ``splice``, and make the layer a submodule of its block, so that it moves and trains with the model.

    Raises:
        UserError: as ``splice``, or another layer is attached there.
    """
    block = architecture_of(layer, model).block(layer.layer)
    if SUBMODULE in dict(block.named_children()):
        raise UserError(f"Layer {layer.layer} of the model already has an attached layer. Detach that one first.")
    stack = ExitStack()
    _splice(layer, model, edits, mode, stack)
    block.add_module(SUBMODULE, layer)
    stack.callback(delattr, block, SUBMODULE)
    return Attachment(stack)


def _splice(layer: Layer, model: Any, edits: Edits, mode: SteeringMode, stack: ExitStack) -> None:
    plan = edit_plan(layer, edits)
    architecture = architecture_of(layer, model)
    text = GrowingText(layer, plan) if plan.depends_on_position else None
    if text is not None:
        stack.callback(model.register_forward_pre_hook(text.before_forward, with_kwargs=True).remove)
    function = LayerFunction(layer.core, mode, plan, text)
    replace_mlp(architecture.block(layer.layer), architecture.mlp_names(layer.layer), function, stack)


def architecture_of(layer: Layer, model: Any) -> Architecture:
    """Return the blocks of ``model``, checked against the widths of ``layer``.

    Raises:
        UserError: the architecture is not supported, or the widths differ.
    """
    architecture = Architecture(model, getattr(model, "name_or_path", "") or type(model).__name__)
    shape, config = architecture.mlp_shape(layer.layer), layer.config
    expected = shape.output_width if layer.core.reads == "mlp-output" else shape.input_width
    if (expected, shape.output_width) != (config.input_width, config.output_width):
        raise UserError(
            f"'{layer.name}' has widths {config.input_width} -> {config.output_width}, but the MLP of layer "
            f"{layer.layer} of this model has {expected} -> {shape.output_width}. Use the model that it was trained "
            f"on: {layer.run.config.language_model}."
        )
    return architecture


# ---------------------------------------------------------------- activations


class _Captured(Exception):
    """Ends the forward pass after the layer's MLP."""

    def __init__(self, activations: Tensor) -> None:
        self.activations = activations


def batch_activations(layer: Layer, model: Any, batch: Mapping[str, Tensor] | Tensor) -> Tensor:
    """Gate activations as a sparse tensor [B, T, N]; see ``Layer.activations``."""
    inputs = model_inputs(model, batch)
    x_BTI = mlp_activations(layer, model, inputs)
    rows_BT = inputs.get("attention_mask", torch.ones(x_BTI.shape[:2], device=x_BTI.device)).to(x_BTI.device).bool()
    coefficients_PK, indices_PK = layer.core.route(like_weights(x_BTI[rows_BT], layer.core))
    token_Q, column_Q = coefficients_PK.nonzero(as_tuple=True)
    positions_P2 = rows_BT.nonzero().to(token_Q.device)
    indices_3Q = torch.cat([positions_P2[token_Q].T, indices_PK[token_Q, column_Q].unsqueeze(0)])
    size = (*rows_BT.shape, layer.config.num_experts)
    values_Q = coefficients_PK[token_Q, column_Q]
    return torch.sparse_coo_tensor(indices_3Q, values_Q, size, check_invariants=False).coalesce()


def model_inputs(model: Any, batch: Mapping[str, Tensor] | Tensor) -> dict[str, Tensor]:
    """Arguments of the model's forward pass, on its device. Left-padded rows get the positions of unpadded ones.

    Raises:
        UserError: the batch holds neither token ids nor embeddings as tensors.
    """
    given = {"input_ids": batch} if isinstance(batch, Tensor) else dict(batch)
    inputs = {name: given[name].to(model.device) for name in MODEL_INPUTS if isinstance(given.get(name), Tensor)}
    if not {"input_ids", "inputs_embeds"} & inputs.keys():
        raise UserError(
            "The batch has no tensor of token ids. Pass the result of "
            'tokenizer(texts, return_tensors="pt", padding=True), or a tensor of ids [B, T].'
        )
    mask_BT = inputs.get("attention_mask")
    is_padded_left = mask_BT is not None and not bool(mask_BT[:, 0].all())
    # In forward, transformers counts padding on the left as positions; in generate it does not.
    if mask_BT is not None and is_padded_left and "position_ids" in inspect.signature(model.forward).parameters:
        inputs.setdefault("position_ids", (mask_BT.long().cumsum(dim=1) - 1).clamp_min(0))
    return inputs


def mlp_activations(layer: Layer, model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """Input [B, T, I] of the layer's MLP, or its output for an autoencoder. Later blocks are not computed."""
    architecture = architecture_of(layer, model)
    reads_output = layer.core.reads == "mlp-output"

    def capture(x_BTI: Tensor, mlp: Mlp) -> Tensor:
        raise _Captured(mlp() if reads_output else x_BTI)

    with ExitStack() as stack:
        replace_mlp(architecture.block(layer.layer), architecture.mlp_names(layer.layer), capture, stack)
        try:
            model(**inputs, use_cache=False)
        except _Captured as captured:
            return captured.activations
    raise AssertionError("The model did not compute the layer's MLP.")
