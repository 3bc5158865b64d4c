"""Linearised forward pass in which every node of a circuit is a leaf tensor, so that gradients are edge weights.

Each MLP with a run is replaced by

    y = sum_n a_n (c_n * zD) + rest

Leaves are the coefficients a_n, rest, the outputs of MLPs without a run, and the inputs of the first block. rest is the
layer's output bias plus, with errors kept, the layer's reconstruction error. The direction c_n * zD is a constant,
although zD depends on the input: a circuit explains an expert's coefficient only. The coefficient is linear in the
MLP's input while the set of active experts is fixed. All other operations are linear too (``linearization``).

With frozen coefficients, the gradient with respect to a leaf is its direct effect, through no other expert. With live
coefficients, which are recomputed from their inputs, it is the effect along all paths.

Shapes: B rows of the same text, T tokens, P = B * T tokens of all rows, I input width, O output width, K active,
V vocabulary, W residual width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mxd.trainer.analysis.circuits.linearization import LinearizedOps
from mxd.trainer.config.analysis import Errors
from mxd.trainer.language_model.mlp_hooks import Mlp, MlpFunction
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.layers.transcoders import SkipTranscoder
from mxd.trainer.storage.run import Run

FrozenMask = Callable[[int, Tensor], Tensor]
"""Function from a layer and its active experts, [P, K], to a mask of the coefficients to freeze, [P, K]."""


@dataclass(frozen=True, eq=False)
class LayerSite:
    """Tensors of a pass at the MLP of one layer with a run."""

    sparse_layer: SparseLayer
    x_BTI: Tensor
    """Input of the MLP. Gradients flow through it."""
    coefficients_PK: Tensor
    """Coefficients of the active experts; a leaf."""
    indices_PK: Tensor
    """Active experts."""
    rest_BTO: Tensor
    """Sum of error and bias; a leaf."""
    error_BTO: Tensor
    """Output of the MLP minus the layer's reconstruction; zero with errors dropped."""
    bias_BTO: Tensor
    """Output of the layer without its active experts: the output bias and the mean of a centred mixing."""


@dataclass(frozen=True, eq=False)
class Contributions:
    """Contribution of every source to the target of each row: gradient times value. Mappings are keyed by layer."""

    embeddings_BT: Tensor
    experts_BTK: Mapping[int, Tensor]
    errors_BT: Mapping[int, Tensor]
    mlps_BT: Mapping[int, Tensor]
    """Contributions of the MLPs without a run."""
    constants_B: Tensor
    """Contributions of all biases, including the sparse layers' biases."""


@dataclass(eq=False)
class LinearizedPass:
    """Linearised forward pass of a text in several rows, created by ``run_linearized``."""

    embedding_BTW: Tensor
    """Input of the first block; a leaf."""
    sites: dict[int, LayerSite] = field(default_factory=dict)
    """Layers with a run, by layer index."""
    mlps_BTO: dict[int, Tensor] = field(default_factory=dict)
    """Outputs of the MLPs without a run, by layer index; leaves."""
    constants: list[Tensor] = field(default_factory=list)
    """Biases; leaves."""
    logits_BV: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Logits after the last token."""

    def contributions(self, outputs: Sequence[Tensor], seeds: Sequence[Tensor]) -> Contributions:
        """Compute every source's contribution to the dot product of ``outputs`` and ``seeds`` in each row."""
        sites, mlps = list(self.sites), list(self.mlps_BTO)
        leaves = [
            self.embedding_BTW,
            *(self.sites[layer].coefficients_PK for layer in sites),
            *(self.sites[layer].rest_BTO for layer in sites),
            *(self.mlps_BTO[layer] for layer in mlps),
            *self.constants,
        ]
        gradients_of_leaves = torch.autograd.grad(outputs, leaves, seeds, retain_graph=True, allow_unused=True)
        gradients = iter(zip(leaves, gradients_of_leaves, strict=True))
        rows, tokens = self.embedding_BTW.shape[:2]
        embeddings_BT = _product(*next(gradients)).sum(-1)
        experts = {layer: _product(*next(gradients)).reshape(rows, tokens, -1) for layer in sites}
        rests = {layer: next(gradients)[1] for layer in sites}
        errors = {layer: _product(self.sites[layer].error_BTO, rests[layer]).sum(-1) for layer in sites}
        biases_B = sum(_product(self.sites[layer].bias_BTO, rests[layer]).reshape(rows, -1).sum(-1) for layer in sites)
        mlp_outputs = {layer: _product(*next(gradients)).sum(-1) for layer in mlps}
        constants_B = sum((_product(*pair).reshape(rows, -1).sum(-1) for pair in gradients), start=biases_B)
        assert isinstance(constants_B, Tensor)
        return Contributions(embeddings_BT, experts, errors, mlp_outputs, constants_B)


def run_linearized(
    language_model: LanguageModel,
    runs: Sequence[Run],
    ids_BT: Tensor,
    errors: Errors,
    frozen_mask: FrozenMask | None = None,
) -> LinearizedPass:
    """Run the linearised forward pass.

    Args:
        runs: at most one run per layer.
        ids_BT: the same text in every row.
        errors: "kept" adds the layers' reconstruction errors, "dropped" does not.
        frozen_mask: coefficients to freeze. All others are live. By default all are frozen.
    """
    rows, tokens = ids_BT.shape
    forward_pass = LinearizedPass(torch.zeros(rows, tokens, 0))
    sparse_layers = {run.config.layer: load_sparse_layer(language_model, run) for run in runs}
    replacements: dict[int, MlpFunction] = {
        layer: partial(_sparse_mlp, forward_pass, layer, sparse_layers[layer], errors, frozen_mask)
        if layer in sparse_layers
        else partial(_original_mlp, forward_pass, layer)
        for layer in range(len(language_model.architecture.blocks))
    }
    handle = language_model.architecture.blocks[0].register_forward_pre_hook(
        partial(_embedding_leaf, forward_pass), with_kwargs=True
    )
    with torch.enable_grad(), LinearizedOps() as ops:
        try:
            with language_model.replace_mlps(replacements):
                residual_BW = language_model.residual(ids_BT)[:, -1]
        finally:
            handle.remove()
        forward_pass.logits_BV = language_model.unembed(residual_BW).float()
    forward_pass.constants = ops.constants
    return forward_pass


def load_sparse_layer(language_model: LanguageModel, run: Run) -> SparseLayer:
    """A run's sparse layer on its MLP's device, without gradients for its parameters."""
    return run.layer.to(language_model.device_of(run.config.layer)).requires_grad_(False)


def freeze_nothing(_layer: int, indices_PK: Tensor) -> Tensor:
    """Frozen mask that leaves every coefficient live."""
    return torch.zeros_like(indices_PK, dtype=torch.bool)


def _product(values: Tensor, gradient: Tensor | None) -> Tensor:
    return torch.zeros_like(values) if gradient is None else (values.detach() * gradient).float()


def _leaf(values: Tensor) -> Tensor:
    return values.detach().clone().requires_grad_()


def _embedding_leaf(
    forward_pass: LinearizedPass, _block: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """Replace the first block's input by a leaf."""
    forward_pass.embedding_BTW = _leaf(inputs[0] if inputs else named["hidden_states"])
    embedding_BTW = forward_pass.embedding_BTW.clone()
    if inputs:
        return (embedding_BTW, *inputs[1:]), named
    return inputs, {**named, "hidden_states": embedding_BTW}


def _original_mlp(forward_pass: LinearizedPass, layer: int, _x: Tensor, mlp: Mlp) -> Tensor:
    with torch.no_grad():
        output = mlp()
    forward_pass.mlps_BTO[layer] = _leaf(output)
    return forward_pass.mlps_BTO[layer].clone()  # some blocks add to it in place


def _sparse_mlp(
    forward_pass: LinearizedPass,
    layer: int,
    sparse_layer: SparseLayer,
    errors: Errors,
    frozen_mask: FrozenMask | None,
    x_BTI: Tensor,
    mlp: Mlp,
) -> Tensor:
    """Output of a sparse layer whose coefficients and rest are leaves."""
    x_PI = x_BTI.reshape(-1, x_BTI.shape[-1]).float()
    shape = (*x_BTI.shape[:-1], -1)
    live_PK, indices_PK = sparse_layer.route(x_PI)
    routing = Routing(live_PK.detach(), indices_PK)
    with torch.no_grad():
        dense_PM = sparse_layer.dense_output(x_PI)
        reconstruction_BTO = sparse_layer.decode(dense_PM, routing).reshape(shape)
        error_BTO = mlp().float() - reconstruction_BTO if errors == "kept" else torch.zeros_like(reconstruction_BTO)
        bias_BTO = constant_output(sparse_layer, dense_PM).reshape(shape)
    coefficients_PK = _leaf(routing.coefficients_TK)
    rest_BTO = _leaf(error_BTO + bias_BTO)
    forward_pass.sites[layer] = LayerSite(
        sparse_layer, x_BTI, coefficients_PK, indices_PK, rest_BTO, error_BTO, bias_BTO
    )
    if frozen_mask is not None:
        coefficients_PK = coefficients_PK + (live_PK - live_PK.detach()) * ~frozen_mask(layer, indices_PK)
    output_PO = sparse_layer.contribution(dense_PM, Routing(coefficients_PK, indices_PK))
    if isinstance(sparse_layer, SkipTranscoder):  # the skip connection is linear
        output_PO = output_PO + sparse_layer.dense_output(x_PI)
    return (output_PO.reshape(shape) + rest_BTO).to(x_BTI.dtype)


def constant_output(sparse_layer: SparseLayer, dense_PM: Tensor) -> Tensor:
    """Output of a layer without its active experts and its skip connection, [P, O]: the biases."""
    if isinstance(sparse_layer, SkipTranscoder):
        dense_PM = torch.zeros_like(dense_PM)
    no_experts = Routing(dense_PM.new_zeros(len(dense_PM), 1), dense_PM.new_zeros(len(dense_PM), 1, dtype=torch.int64))
    return sparse_layer.decode(dense_PM, no_experts)
