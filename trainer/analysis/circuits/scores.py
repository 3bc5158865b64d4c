"""Replacement and completeness score of circuit-tracer (``compute_graph_scores`` of its ``graph`` module).

Their graph holds direct effects, which pass through attention and norms but through no other node. So they are computed
in a pass whose MLP outputs are constants. Nodes are the shown experts, an error per layer and token, and the tokens. A
layer's error is its MLP's output minus the reconstruction, and the whole output of an MLP without a run. We
differentiate attention patterns and norms, which circuit-tracer freezes.

Shapes: F shown experts, E errors, T tokens, S = F + E + T sources, O output width, W residual width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from mxd.trainer.analysis.circuits.graph import GraphScores
from mxd.trainer.analysis.effects import Forward, Reading, edited_mlps, gradients_of, graph_forward
from mxd.trainer.config.analysis import Errors
from mxd.trainer.language_model.mlp_hooks import Mlp, MlpFunction
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.base import Routing, SparseLayer

SMALLEST_SUM = 1e-10
"""Smallest sum by which a row of effects is normalised, as in circuit-tracer."""


def graph_scores(
    language_model: LanguageModel,
    sparse_layers: Mapping[int, SparseLayer],
    reading: Reading,
    errors: Errors,
    experts: Sequence[tuple[int, int, int]],
) -> GraphScores:
    """Scores of the graph of some active experts, given as layer, position and expert."""

    def constant(function: MlpFunction | None, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        computed = mlp() if function is None else function(x_BTI, mlp)
        return computed.detach().requires_grad_()

    layers, replaced = range(len(language_model.architecture.blocks)), edited_mlps(sparse_layers, errors)
    functions = {layer: partial(constant, replaced.get(layer)) for layer in layers}
    forward = graph_forward(language_model, sparse_layers, reading, functions)
    parts = [_expert_output(forward, *expert) for expert in experts]
    errors_LTO = {layer: _error(forward, layer) for layer in layers}
    rows = [_effects(forward, forward.activation(*expert), experts, parts, errors_LTO) for expert in experts]
    rows.append(_effects(forward, reading.value(forward), experts, parts, errors_LTO))
    tokens = len(reading.fed_ids)
    replacement, completeness = scores_of(torch.stack(rows), len(experts), len(layers) * tokens)
    return GraphScores(replacement, completeness)


def scores_of(effects_RS: Tensor, experts: int, errors: int) -> tuple[float, float]:
    """Replacement and completeness score of a graph with one target.

    Args:
        effects_RS: direct effects of the sources on each of the experts, and last on the target.
        experts: number of experts, the first sources and rows.
        errors: number of errors, the next sources. The remaining sources are tokens.
    """
    sizes_RS = effects_RS.detach().double().abs()
    shares_RS = sizes_RS / sizes_RS.sum(1, keepdim=True).clamp_min(SMALLEST_SUM)
    reached_S = influence_S = shares_RS[-1]
    for _ in range(experts):  # no path has more experts
        reached_S = reached_S[:experts] @ shares_RS[:-1]
        influence_S = influence_S + reached_S
    from_errors = influence_S[experts : experts + errors].sum()
    from_tokens = influence_S[experts + errors :].sum()
    explained_R = 1 - shares_RS[:, experts : experts + errors].sum(1)
    weight_R = torch.cat([influence_S[:experts], influence_S.new_ones(1)])
    # Errors and tokens have no inputs, so they count as explained.
    explained = (explained_R * weight_R).sum() + from_errors + from_tokens
    ends = from_errors + from_tokens
    return float(from_tokens / ends) if ends else 0.0, float(explained / (weight_R.sum() + ends))


def _effects(
    forward: Forward,
    value_B: Tensor,
    experts: Sequence[tuple[int, int, int]],
    parts: Sequence[Tensor],
    errors_LTO: Mapping[int, Tensor],
) -> Tensor:
    """Direct effects of all sources on a value, [S]."""
    assert forward.embedding_BTW is not None
    tensors = [*forward.outputs_BTO.values(), forward.embedding_BTW]
    *gradients, embedding_1TW = gradients_of(value_B, tensors)
    at = {layer: gradient_1TO[0] for layer, gradient_1TO in zip(forward.outputs_BTO, gradients, strict=True)}
    from_experts = [at[layer][position] @ part_O for (layer, position, _), part_O in zip(experts, parts, strict=True)]
    from_errors = [(at[layer] * error_TO).sum(1) for layer, error_TO in errors_LTO.items()]
    from_tokens = (embedding_1TW[0] * forward.embedding_BTW[0].detach().float()).sum(1)
    rows = [*([torch.stack(from_experts)] if from_experts else []), *from_errors, from_tokens]
    return torch.cat([row.cpu() for row in rows])


@torch.no_grad()
def _expert_output(forward: Forward, layer: int, position: int, expert: int) -> Tensor:
    sparse_layer, x_1I = forward.sparse_layers[layer], forward.inputs_BTI[layer][:, position].float()
    routing = sparse_layer.route(x_1I)
    one = Routing(routing.activations_TK * (routing.indices_TK == expert), routing.indices_TK)
    return sparse_layer.contribution(sparse_layer.dense_output(x_1I), one)[0]


@torch.no_grad()
def _error(forward: Forward, layer: int) -> Tensor:
    """Output of an MLP that its layer does not reconstruct, [T, O]."""
    output_TO = forward.outputs_BTO[layer][0].float()
    if layer not in forward.sparse_layers:
        return output_TO
    error_TO: Tensor = output_TO - forward.sparse_layers[layer](forward.inputs_BTI[layer][0].float()).output_TO
    return error_TO
