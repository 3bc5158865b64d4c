"""Linearised forward pass in which every node of a circuit is a leaf tensor, so that gradients are edge weights.

Each MLP with a run is replaced by

    y = sum_n a_n (c_n * zD) + rest

Leaves are y, the outputs of MLPs without a run, and the inputs of the first block. The gradient with respect to y also
gives those of its parts: the coefficients a_n and rest. rest is the layer's output bias plus, with errors kept, the
layer's reconstruction error. The direction c_n * zD is a constant, although zD depends on the input: a circuit explains
an expert's coefficient only. The coefficient is linear in the MLP's input while the set of active experts is fixed. All
other operations are linear too (``linearization``).

With frozen coefficients, the gradient with respect to a leaf is its direct effect, through no other expert. With live
coefficients, which are recomputed from their inputs, it is the effect along all paths.

The text is computed once. The backward passes of several targets are batched, which needs frozen coefficients.

Shapes: R targets, T tokens, I input width, O output width, M width of the dense output, K active, V vocabulary,
W residual width. Tensors of the pass have one row per text, of which there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mxd.trainer.analysis.circuits.linearization import AttentionOutput, LinearizedOps
from mxd.trainer.config.analysis import Errors
from mxd.trainer.language_model.mlp_hooks import Mlp, MlpFunction
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.layers.transcoders import SkipTranscoder
from mxd.trainer.storage.run import Run


@dataclass(frozen=True, eq=False)
class LayerSite:
    """Tensors of a pass at the MLP of one layer with a run."""

    sparse_layer: SparseLayer
    x_1TI: Tensor
    """Input of the MLP. Gradients flow through it."""
    coefficients_TK: Tensor
    """Coefficients of the active experts; a leaf of ``experts_TO`` only."""
    indices_TK: Tensor
    """Active experts."""
    experts_TO: Tensor
    """Sum of the experts' contributions, linear in ``coefficients_TK``."""
    output_1TO: Tensor
    """Output without a skip connection; a leaf."""
    error_1TO: Tensor
    """Output of the MLP minus the layer's reconstruction; zero with errors dropped."""
    bias_1TO: Tensor
    """Output of the layer without its active experts: the output bias and the mean of a centred mixing."""

    def expert_products(self, gradients_RTO: Tensor) -> Tensor:
        """Coefficient times gradient of every active expert, [R, T, K], for gradients of the output."""
        products = [
            torch.autograd.grad(self.experts_TO, self.coefficients_TK, gradient_TO.float(), retain_graph=True)[0]
            for gradient_TO in gradients_RTO
        ]
        return torch.stack(products) * self.coefficients_TK.detach()


@dataclass(frozen=True, eq=False)
class Contributions:
    """Contribution of every source to each target: gradient times value. Mappings are keyed by layer."""

    embeddings_RT: Tensor
    experts_RTK: Mapping[int, Tensor]
    errors_RT: Mapping[int, Tensor]
    mlps_RT: Mapping[int, Tensor]
    """Contributions of the MLPs without a run."""
    constants_R: Tensor
    """Contributions of all biases, including the sparse layers' biases."""


@dataclass(eq=False)
class LinearizedPass:
    """Linearised forward pass of a text, created by ``run_linearized``."""

    live: bool
    """True if coefficients are recomputed from their inputs."""
    embedding_1TW: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Input of the first block; a leaf."""
    sites: dict[int, LayerSite] = field(default_factory=dict)
    """Layers with a run, by layer index."""
    mlps_1TO: dict[int, Tensor] = field(default_factory=dict)
    """Outputs of the MLPs without a run, by layer index; leaves."""
    one: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Factor of all biases; a leaf."""
    attention: list[AttentionOutput] = field(default_factory=list)
    """Calls of attention, in the order of the layers."""
    logits_1V: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Logits after the last token."""
    frozen: dict[int, Tensor] = field(default_factory=dict)
    """Masks [T, K] of live coefficients that the next backward pass treats as frozen, by layer."""

    @property
    def leaves(self) -> list[Tensor]:
        """Embeddings, outputs of the sparse layers, outputs of the other MLPs, and the factor of the biases."""
        outputs = [site.output_1TO for site in self.sites.values()]
        return [self.embedding_1TW, *outputs, *self.mlps_1TO.values(), self.one]

    def contributions(self, outputs: Sequence[Tensor], seeds: Sequence[Tensor]) -> Contributions:
        """Compute every source's contribution to the dot product of ``outputs`` and ``seeds`` for each target.

        Args:
            outputs: tensors of the pass.
            seeds: for each of ``outputs``, one tensor of its shape per target, [R, 1, ...].
        """
        leaves = self.leaves
        gradients = iter(self._gradients(outputs, leaves, seeds))
        embeddings_RT = _product(self.embedding_1TW, next(gradients))
        experts, errors, constants_R = {}, {}, torch.zeros(len(seeds[0]), device=self.embedding_1TW.device)
        for layer, site in self.sites.items():
            gradient_R1TO = next(gradients)
            experts[layer] = site.expert_products(gradient_R1TO[:, 0])
            errors[layer] = _product(site.error_1TO, gradient_R1TO)
            constants_R = constants_R + _product(site.bias_1TO, gradient_R1TO).sum(1).to(constants_R.device)
        mlps = {layer: _product(output_1TO, next(gradients)) for layer, output_1TO in self.mlps_1TO.items()}
        constants_R = constants_R + next(gradients).float().to(constants_R.device)
        return Contributions(embeddings_RT, experts, errors, mlps, constants_R)

    def _gradients(
        self, outputs: Sequence[Tensor], leaves: Sequence[Tensor], seeds: Sequence[Tensor]
    ) -> Iterator[Tensor]:
        """Gradients of the leaves for each target, [R, ...]; zero where a target does not depend on a leaf."""
        targets = len(seeds[0])
        unused: set[int] = set()

        def backward(*row: Tensor) -> tuple[Tensor, ...]:
            gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
                outputs, leaves, row, retain_graph=True, allow_unused=True
            )
            unused.update(index for index, gradient in enumerate(gradients) if gradient is None)
            return tuple(gradient for gradient in gradients if gradient is not None)

        if targets > 1 and not self.live:
            batches = torch.vmap(backward)(*seeds)
        else:
            rows = [backward(*row) for row in zip(*seeds, strict=True)]
            batches = tuple(torch.stack(parts) for parts in zip(*rows, strict=True))
        gradients = iter(batches)
        for index, leaf in enumerate(leaves):
            yield leaf.new_zeros(1).expand(targets, *leaf.shape) if index in unused else next(gradients)


def run_linearized(
    language_model: LanguageModel, runs: Sequence[Run], ids: Sequence[int], errors: Errors, *, live: bool = False
) -> LinearizedPass:
    """Run the linearised forward pass of a text.

    Args:
        runs: at most one run per layer.
        errors: "kept" adds the layers' reconstruction errors, "dropped" does not.
        live: recompute coefficients from their inputs. By default all are frozen.
    """
    forward_pass = LinearizedPass(live)
    sparse_layers = {run.config.layer: load_sparse_layer(language_model, run) for run in runs}
    replacements: dict[int, MlpFunction] = {
        layer: partial(_sparse_mlp, forward_pass, layer, sparse_layers[layer], errors)
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
                residual_1W = language_model.residual(torch.tensor([list(ids)]))[:, -1]
        finally:
            handle.remove()
        forward_pass.attention = list(ops.attention)  # without that of the unembedding's pass
        forward_pass.logits_1V = language_model.unembed(residual_1W).float()
    forward_pass.one = ops.one
    return forward_pass


def load_sparse_layer(language_model: LanguageModel, run: Run) -> SparseLayer:
    """A run's sparse layer on its MLP's device, without gradients for its parameters."""
    return run.layer.to(language_model.device_of(run.config.layer)).requires_grad_(False)


def _product(values_1TW: Tensor, gradient_R1TW: Tensor) -> Tensor:
    """Dot products of values and gradients at each token, [R, T]."""
    return torch.einsum("tw,rtw->rt", values_1TW.detach()[0].float(), gradient_R1TW[:, 0].float())


def _leaf(values: Tensor) -> Tensor:
    return values.detach().clone().requires_grad_()


def _embedding_leaf(
    forward_pass: LinearizedPass, _block: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """Replace the first block's input by a leaf."""
    forward_pass.embedding_1TW = _leaf(inputs[0] if inputs else named["hidden_states"])
    embedding_1TW = forward_pass.embedding_1TW.clone()
    if inputs:
        return (embedding_1TW, *inputs[1:]), named
    return inputs, {**named, "hidden_states": embedding_1TW}


def _original_mlp(forward_pass: LinearizedPass, layer: int, _x: Tensor, mlp: Mlp) -> Tensor:
    with torch.no_grad():
        output = mlp()
    forward_pass.mlps_1TO[layer] = _leaf(output)
    return forward_pass.mlps_1TO[layer].clone()  # some blocks add to it in place


def _sparse_mlp(
    forward_pass: LinearizedPass, layer: int, sparse_layer: SparseLayer, errors: Errors, x_1TI: Tensor, mlp: Mlp
) -> Tensor:
    """Output of a sparse layer, which is a leaf plus, with live coefficients, their change."""
    x_TI = x_1TI.reshape(-1, x_1TI.shape[-1]).float()
    shape = (*x_1TI.shape[:-1], -1)
    live_TK, indices_TK = sparse_layer.route(x_TI)
    coefficients_TK = _leaf(live_TK)
    with torch.no_grad():
        dense_TM = sparse_layer.dense_output(x_TI)
        reconstruction_1TO = sparse_layer.decode(dense_TM, Routing(live_TK, indices_TK)).reshape(shape)
        error_1TO = mlp().float() - reconstruction_1TO if errors == "kept" else torch.zeros_like(reconstruction_1TO)
        bias_1TO = constant_output(sparse_layer, dense_TM).reshape(shape)
    experts_TO = sparse_layer.contribution(dense_TM, Routing(coefficients_TK, indices_TK))
    output_1TO = _leaf(experts_TO.reshape(shape) + error_1TO + bias_1TO)
    forward_pass.sites[layer] = LayerSite(
        sparse_layer, x_1TI, coefficients_TK, indices_TK, experts_TO, output_1TO, error_1TO, bias_1TO
    )
    total_1TO = output_1TO
    if forward_pass.live:
        # The hook must not hold the pass: autograd would keep both, and with them the whole graph, forever.
        live_TK.register_hook(partial(_freeze, forward_pass.frozen, layer))
        change_TK = live_TK - live_TK.detach()
        change_TO = sparse_layer.contribution(dense_TM, Routing(change_TK, indices_TK))
        total_1TO = total_1TO + change_TO.reshape(shape)
    if isinstance(sparse_layer, SkipTranscoder):  # the skip connection is linear
        total_1TO = total_1TO + sparse_layer.dense_output(x_TI).reshape(shape)
    return total_1TO.to(x_1TI.dtype).clone()  # some blocks add to it in place


def _freeze(frozen: Mapping[int, Tensor], layer: int, gradient_TK: Tensor) -> Tensor:
    frozen_TK = frozen.get(layer)
    return gradient_TK if frozen_TK is None else gradient_TK.masked_fill(frozen_TK, 0)


def constant_output(sparse_layer: SparseLayer, dense_TM: Tensor) -> Tensor:
    """Output of a layer without its active experts and its skip connection, [T, O]: the biases."""
    if isinstance(sparse_layer, SkipTranscoder):
        dense_TM = torch.zeros_like(dense_TM)
    no_experts = Routing(dense_TM.new_zeros(len(dense_TM), 1), dense_TM.new_zeros(len(dense_TM), 1, dtype=torch.int64))
    return sparse_layer.decode(dense_TM, no_experts)
