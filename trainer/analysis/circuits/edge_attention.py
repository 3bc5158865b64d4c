"""Attention of an edge: the heads that carried it, and the sources that made those heads look where they looked.

Heads. An edge is linear in its source. The part of an edge that passes head h of layer l is

    sum_q gradient(o_q) . o_q(source),   o_q(source) = sum_k A_qk v_k(source)

with the gradient of the edge's target with respect to the head's output o, and the values v that the source causes.
Both are taken along all paths, so a path through heads of two layers counts for both. Within one layer, the parts of
its heads and the part that passes it in the residual stream sum to the edge.

Scores. A head looks from q to k because of its score s = scale * query_q . key_k. Softmax ignores what is equal for all
keys, so the score minus its mean over the visible keys is explained. It is linear in the query for fixed keys, and
linear in the keys for a fixed query. Each side is decomposed into the direct contributions of all sources, as an edge
is: through earlier heads, with norms frozen, through no other expert.

Shapes: H heads, J heads of keys and values, T tokens, D width of a head, R scores, S sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from mxd.trainer.analysis.circuits.attention import AttentionCall
from mxd.trainer.analysis.circuits.edge_results import AttentionScore, EdgeAttention, HeadPart, LayerPart, ScoreSource
from mxd.trainer.analysis.circuits.forward_pass import LayerSite, LinearizedPass, run_linearized
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitEdge, NodeKey
from mxd.trainer.analysis.circuits.nodes import Sources
from mxd.trainer.analysis.circuits.tracing import gate_row, target_seed, target_token, traced_ids
from mxd.trainer.config.analysis import TargetConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.base import Routing
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

SHOWN_HEADS = 6
EXPLAINED_HEADS = 3
"""Number of heads whose scores are decomposed."""
SHOWN_SOURCES = 5
"""Number of sources listed on each side of a score."""
SHOWN_EXPERTS = 3
"""Number of experts listed on each side, even if whole MLPs contribute more."""


class Pair(NamedTuple):
    """Two positions of a head."""

    layer: int
    head: int
    query: int
    key: int
    weight: float
    """Part of the edge that passes from ``key`` to ``query``."""
    pattern: float


@dataclass(frozen=True, eq=False)
class _Edge:
    """Source and target of an edge, as tensors."""

    leaf: Tensor
    direction: Tensor
    """Value of the source, in the leaf's shape."""
    output: Tensor
    seed: Tensor
    """Gradient of the target with respect to ``output``."""


def explain_edges(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: TargetConfig,
    edges: Sequence[tuple[NodeKey, NodeKey]],
    callbacks: Callbacks = NO_CALLBACKS,
) -> tuple[EdgeAttention, ...]:
    """Explain which heads carried edges of a circuit, and why these heads looked where they did.

    Args:
        runs: runs of the circuit.
        config: prompt and target of the circuit.
        edges: sources and targets; a target is the circuit's target or an expert.
        callbacks: progress in edges, and cancellation.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``trace``; a node does not exist; or the architecture's attention cannot be explained.
        CancelledError: the task was cancelled.
    """
    chosen = sorted([runs] if isinstance(runs, Run) else runs, key=lambda run: run.config.layer)
    ids = traced_ids(language_model, chosen, config)
    if len(ids) < 2:
        raise UserError("The first token has no attention to explain. Choose a later position.")
    forward_pass = run_linearized(language_model, chosen, ids, config.errors)
    if len(forward_pass.attention) != len(language_model.architecture.blocks):
        raise UserError(
            "Attention cannot be explained for this architecture, because its layers do not call PyTorch's "
            "scaled_dot_product_attention. Trace the circuit without it."
        )
    token = target_token(forward_pass.logits_1V[0], config.target)
    sources, names = Sources.from_pass(forward_pass), {run.config.layer: run.name for run in chosen}
    explained = []
    for number, (source, target) in enumerate(edges):
        callbacks.check_cancelled()
        callbacks.on_progress(number, len(edges), "")
        explained.append(_explain(forward_pass, sources, names, _edge(forward_pass, source, target, token)))
    return tuple(explained)


def explain_circuit_edges(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: TargetConfig,
    circuit: Circuit,
    edges: Sequence[CircuitEdge],
    callbacks: Callbacks = NO_CALLBACKS,
) -> tuple[EdgeAttention, ...]:
    """Explain edges of a circuit that was traced with these runs and settings.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``explain_edges``.
        CancelledError: the task was cancelled.
    """
    settings = {name: getattr(config, name) for name in TargetConfig.model_fields}
    target = TargetConfig(**{**settings, "target": circuit.target.id})
    nodes = circuit.nodes
    keys = [(nodes[edge.source].key, nodes[edge.target].key) for edge in edges]
    return explain_edges(language_model, runs, target, keys, callbacks)


def _explain(forward_pass: LinearizedPass, sources: Sources, names: dict[int, str], edge: _Edge) -> EdgeAttention:
    attention = forward_pass.attention
    outputs = [item.output_BHTD for item in attention]
    values = [item.value_BJTD for item in attention]
    gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
        [edge.output], [edge.leaf, *outputs], [edge.seed], True, allow_unused=True
    )
    if gradients[0] is None:
        raise UserError("There is no edge between these nodes. Choose a source in front of the target.")
    weight = float((gradients[0] * edge.direction).sum())
    parts, pairs = [], []
    for layer, (item, gradient, tangent) in enumerate(
        zip(attention, gradients[1:], _tangents(values, edge), strict=True)
    ):
        if gradient is None or tangent is None:
            continue
        call = item.call.detached()
        heads_H = (gradient * call.output(tangent)).sum((0, 2, 3)).tolist()
        parts.append(LayerPart(layer, sum(heads_H), weight - sum(heads_H)))
        pairs += [(part, layer, head, call, gradient, tangent) for head, part in enumerate(heads_H)]
    strongest = sorted(pairs, key=lambda pair: -abs(pair[0]))[:SHOWN_HEADS]
    strongest_pairs = [_strongest_pair(*pair[1:]) for pair in strongest]
    scores = _scores(forward_pass, sources, names, strongest_pairs[:EXPLAINED_HEADS])
    heads = tuple(
        HeadPart(pair.layer, pair.head, part[0], pair.query, pair.key, pair.weight, pair.pattern, scores.get(pair))
        for part, pair in zip(strongest, strongest_pairs, strict=True)
    )
    return EdgeAttention(weight, _without_attention(outputs, edge), tuple(parts), heads)


def _edge(forward_pass: LinearizedPass, source: NodeKey, target: NodeKey, token: int) -> _Edge:
    leaf, value_W = _source_value(forward_pass, source)
    direction = torch.zeros_like(leaf)
    direction[0, source[1]] = value_W.to(leaf.dtype)
    if target[0] == "target":
        return _Edge(leaf, direction, forward_pass.logits_1V, target_seed(forward_pass.logits_1V, token))
    site, _ = _active_expert(forward_pass, target)
    seed_1TI = torch.zeros_like(site.x_1TI)
    seed_1TI[0, target[1]] = gate_row(site, target[3] or 0)
    return _Edge(leaf, direction, site.x_1TI, seed_1TI)


def _source_value(forward_pass: LinearizedPass, source: NodeKey) -> tuple[Tensor, Tensor]:
    """Leaf of a source and its value at its token.

    Raises:
        UserError: there is no such node.
    """
    kind, position, layer, _ = source
    if 0 <= position < forward_pass.embedding_1TW.shape[1]:
        if kind == "embedding":
            return forward_pass.embedding_1TW, forward_pass.embedding_1TW.detach()[0, position]
        if kind == "mlp" and layer in forward_pass.mlps_1TO:
            return forward_pass.mlps_1TO[layer], forward_pass.mlps_1TO[layer].detach()[0, position]
        if kind == "error" and layer in forward_pass.sites:
            return forward_pass.sites[layer].output_1TO, forward_pass.sites[layer].error_1TO[0, position]
        if kind == "expert":
            value_O = _expert_value(forward_pass, source)
            return forward_pass.sites[layer or 0].output_1TO, value_O
    raise _unknown(source)


@torch.no_grad()
def _expert_value(forward_pass: LinearizedPass, source: NodeKey) -> Tensor:
    """Contribution of an expert to its layer's output, [O]."""
    site, column = _active_expert(forward_pass, source)
    at = slice(source[1], source[1] + 1)
    one = Routing(site.coefficients_TK[at, column : column + 1], site.indices_TK[at, column : column + 1])
    dense_1M = site.sparse_layer.dense_output(site.x_1TI[0, at].float())
    return site.sparse_layer.contribution(dense_1M, one)[0]


def _active_expert(forward_pass: LinearizedPass, node: NodeKey) -> tuple[LayerSite, int]:
    """Layer of an expert, and its column among the active experts of its token.

    Raises:
        UserError: it is no expert, or not active on its token.
    """
    kind, position, layer, expert = node
    site = None if layer is None else forward_pass.sites.get(layer)
    if kind == "expert" and site is not None and 0 <= position < len(site.indices_TK):
        active_K = (site.indices_TK[position] == expert) & (site.coefficients_TK[position] > 0)
        if bool(active_K.any()):
            return site, int(active_K.nonzero()[0])
    raise _unknown(node)


def _unknown(node: NodeKey) -> UserError:
    kind, position, layer, expert = node
    parts = [f"layer {layer}"] * (layer is not None) + [f"expert {expert}"] * (expert is not None)
    return UserError(f"Unknown {kind} node on token {position}: {', '.join(parts)}. Choose a node of the circuit.")


def _tangents(values: Sequence[Tensor], edge: _Edge) -> list[Tensor | None]:
    """The values of each layer that the source causes, or None in front of it.

    The gradient of the leaf is linear in the seeds of the values. Its derivative along the source is that of the
    values, so two backward passes make a forward pass.
    """
    seeds = [torch.zeros_like(value, requires_grad=True) for value in values]
    (gradient,) = torch.autograd.grad(values, [edge.leaf], seeds, create_graph=True, allow_unused=True)
    if gradient is None:
        return [None] * len(values)
    return list(torch.autograd.grad([gradient], seeds, [edge.direction], allow_unused=True))


def _without_attention(outputs: Sequence[Tensor], edge: _Edge) -> float:
    """Part of the edge on the path that passes no head."""
    with ExitStack() as stack:
        for output in outputs:
            stack.callback(output.register_hook(torch.zeros_like).remove)
        (gradient,) = torch.autograd.grad([edge.output], [edge.leaf], [edge.seed], True)
    return float((gradient * edge.direction).sum())


def _strongest_pair(layer: int, head: int, call: AttentionCall, gradient_1HTD: Tensor, tangent_1JTD: Tensor) -> Pair:
    """Positions between which a head carried most of an edge."""
    single, values_TD = call.of_head(head), tangent_1JTD[0, head // call.group]
    best = Pair(layer, head, 0, 0, 0.0, 0.0)
    for first, pattern_11QT in single.blocks():
        pattern_QT = pattern_11QT[0, 0]
        queries, keys = pattern_QT.shape
        parts_QT = gradient_1HTD[0, head, first : first + queries] @ values_TD[:keys].T * pattern_QT
        query, key = divmod(int(parts_QT.abs().argmax()), keys)
        if abs(part := float(parts_QT[query, key])) > abs(best.weight):
            best = Pair(layer, head, first + query, key, part, float(pattern_QT[query, key]))
    return best


def _scores(
    forward_pass: LinearizedPass, sources: Sources, names: dict[int, str], pairs: Sequence[Pair]
) -> dict[Pair, AttentionScore]:
    """Explain the scores of some pairs, in one batched backward pass."""
    if not pairs:
        return {}
    calls = [forward_pass.attention[pair.layer].call for pair in pairs]
    outputs, seeds, values = [], [], []
    for row, (pair, call) in enumerate(zip(pairs, calls, strict=True)):
        query_D, keys_TD, visible_T = _query_and_keys(call, pair)
        centred_T = -visible_T / visible_T.sum()
        centred_T[pair.key] += 1  # the score minus the mean over the visible keys
        values.append((float(query_D @ keys_TD[pair.key]), float(query_D @ (centred_T @ keys_TD))))
        seed_query = call.query_BHTD.new_zeros(2 * len(pairs), *call.query_BHTD.shape)
        seed_query[2 * row, 0, pair.head, pair.query] = call.scale * (centred_T @ keys_TD)
        seed_keys = call.key_BJTD.new_zeros(2 * len(pairs), *call.key_BJTD.shape)
        seed_keys[2 * row + 1, 0, pair.head // call.group] = call.scale * centred_T.unsqueeze(1) * query_D
        outputs += [call.query_BHTD, call.key_BJTD]
        seeds += [seed_query, seed_keys]
    contributions = forward_pass.contributions(outputs, seeds)
    rows_RS, biases_R = sources.flatten(contributions), contributions.constants_R.tolist()
    sides = [_largest(sources, names, row_S, bias) for row_S, bias in zip(rows_RS, biases_R, strict=True)]
    return {
        pair: AttentionScore(call.scale * value, call.scale * above_mean, *sides[2 * row], *sides[2 * row + 1])
        for row, (pair, call, (value, above_mean)) in enumerate(zip(pairs, calls, values, strict=True))
    }


def _query_and_keys(call: AttentionCall, pair: Pair) -> tuple[Tensor, Tensor, Tensor]:
    """A head's query [D], all its keys [T, D], and 1 for each key that the query sees, [T]."""
    single = call.detached().of_head(pair.head)
    pattern_T = single.pattern(pair.query, pair.query + 1)[0, 0, 0]
    visible_T = torch.zeros(single.key_BJTD.shape[2], device=pattern_T.device)
    visible_T[: len(pattern_T)] = (pattern_T > 0).to(visible_T)
    return single.query_BHTD[0, 0, pair.query], single.key_BJTD[0, 0], visible_T.to(single.key_BJTD)


def _largest(
    sources: Sources, names: dict[int, str], scores_S: Tensor, bias: float
) -> tuple[tuple[ScoreSource, ...], float]:
    """The largest contributions to a score, and the sum of all others."""
    order = scores_S.abs().argsort(descending=True).tolist()
    experts = islice((index for index in order if sources.kinds[index] == "expert"), SHOWN_EXPERTS)
    shown = [
        _score_source(sources, names, index, float(scores_S[index])) for index in {*order[:SHOWN_SOURCES], *experts}
    ]
    shown.append(ScoreSource("bias", None, None, None, None, bias))
    total = float(scores_S.sum()) + bias
    return tuple(sorted(shown, key=lambda source: -abs(source.score))), total - sum(source.score for source in shown)


def _score_source(sources: Sources, names: dict[int, str], index: int, score: float) -> ScoreSource:
    node = sources.nodes[index]
    run = None if node.layer is None else names.get(node.layer)
    return ScoreSource(sources.kinds[index], node.position, node.layer, run, node.expert, score)
