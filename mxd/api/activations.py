"""Gate activations of a batch of token ids.

Shapes: B rows, T tokens, I input width, N experts, P tokens that are not padding, K active experts.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mxd.api.attachment import architecture_of, like_weights
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.mlp_hooks import Mlp, replace_mlp

if TYPE_CHECKING:
    from mxd.api.layer import Layer

MODEL_INPUTS = ("input_ids", "inputs_embeds", "attention_mask", "position_ids", "token_type_ids")
"""Entries of a batch that are passed to the model."""


class _Captured(Exception):
    """Ends the forward pass behind the layer's MLP."""

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
