"""Tracing of circuits: from the target's logit back to experts, from those to earlier experts, and to tokens.

The text is read once. The most influential experts are traced, several in each batched backward pass.

Shapes: R traced nodes of a backward pass, T tokens, I input width, S sources, F traced nodes, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mxd.trainer.analysis.circuits.forward_pass import LayerSite, LinearizedPass, run_linearized
from mxd.trainer.analysis.circuits.graph import (
    Circuit,
    CircuitEdge,
    CircuitNode,
    CircuitToken,
    NextToken,
    NodeKey,
    Source,
)
from mxd.trainer.analysis.circuits.nodes import Sources
from mxd.trainer.analysis.circuits.pruning import InputShares, PrunedGraph, input_shares, prune, total_influence
from mxd.trainer.config.analysis import MOST_TOKENS, CircuitConfig, TargetConfig
from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import single_texts
from mxd.trainer.language_model.tokenizer import token_texts
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import text_ids
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

NUM_CANDIDATES = 10
MAX_BATCH_TOKENS = 1024
"""Number of tokens in a batch, if it has more than ``MIN_ROWS`` rows."""
MIN_ROWS = 8
"""Fewest rows of a batch; they share one attention pattern, which has to be recomputed."""
MAX_ROWS = 16
MAX_TRACED = 128
MIN_TRACED = 32
MAX_TRACED_PAIRS = 1 << 26
"""Traced experts times pairs of tokens: 64 experts in a text of 1,024 tokens."""
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Largest allowed difference between the logit and the sum of contributions, relative to their total size."""
HALF_PRECISION_TOLERANCE = 5e-2


def trace(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: CircuitConfig | str,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Circuit:
    """Trace the circuit of a prompt: the attribution graph of a next token through the layers of some runs.

    Args:
        runs: one or more runs of different layers of this language model.
        config: the prompt, or the prompt with settings.
        callbacks: progress in traced experts, and cancellation.

    Raises:
        TooLongError: the text has more tokens than the language model or ``MOST_TOKENS`` allow.
        UserError: the text is empty, a run is not supported or was trained on another language model, there is no such
            token, or the architecture cannot be linearised.
        CancelledError: the task was cancelled.
    """
    settings = CircuitConfig(prompt=config) if isinstance(config, str) else config
    chosen = sorted([runs] if isinstance(runs, Run) else runs, key=lambda run: run.config.layer)
    ids = traced_ids(language_model, chosen, settings)
    forward_pass = run_linearized(language_model, chosen, ids, settings.errors)
    token = target_token(forward_pass.logits_1V[0], settings.target)
    graph = _trace_experts(_Graph.start(forward_pass, token), max_traced(settings, len(ids)), callbacks)
    callbacks.check_cancelled()
    live = run_linearized(language_model, chosen, ids, settings.errors, live=True)
    return _build_circuit(language_model, chosen, settings, ids, graph, _effects(live, token))


def traced_ids(language_model: LanguageModel, runs: Sequence[Run], config: TargetConfig) -> list[int]:
    """Token ids of the text up to the traced position.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``trace``.
    """
    if not runs:
        raise UserError("A circuit needs at least one run.")
    ids = text_ids(language_model, runs, config.prompt)
    last = len(ids) - 1 if config.position is None else config.position
    if last >= len(ids):
        raise UserError(f"Unknown token position {last}. The text has tokens 0 to {len(ids) - 1}.")
    if last >= MOST_TOKENS:
        raise TooLongError(
            f"The circuit spans {last + 1} tokens. The maximum is {MOST_TOKENS:,}. Shorten the text or choose an "
            "earlier token."
        )
    vocabulary = language_model.config.vocab_size
    if config.target is not None and config.target >= vocabulary:
        raise UserError(
            f"Unknown target token {config.target}. {language_model.source} has token ids 0 to {vocabulary - 1}."
        )
    return ids[: last + 1]


def max_traced(config: CircuitConfig, tokens: int) -> int:
    """Maximum number of traced experts: the requested one, or one that bounds the time of attention."""
    if config.max_traced is not None:
        return config.max_traced
    return min(MAX_TRACED, max(MIN_TRACED, MAX_TRACED_PAIRS // tokens**2))


def batch_rows(tokens: int) -> int:
    """Number of nodes that are traced in one backward pass, for texts with this many tokens."""
    return max(MIN_ROWS, min(MAX_ROWS, MAX_BATCH_TOKENS // tokens))


def target_token(logits_V: Tensor, requested: int | None) -> int:
    """Id of the explained next token: the requested one, or the most probable one."""
    return int(logits_V.argmax()) if requested is None else requested


def target_seed(logits_BV: Tensor, token: int) -> Tensor:
    """Gradient of the target with respect to the logits, [B, V]. The target is the token's logit minus the mean."""
    seed_BV = torch.full_like(logits_BV, -1 / logits_BV.shape[1], requires_grad=False)
    seed_BV[:, token] += 1
    return seed_BV


def gate_row(site: LayerSite, expert: int) -> Tensor:
    """Gradient of an active expert's coefficient with respect to the MLP's input at its token, [I]."""
    return site.sparse_layer.gate.rows(torch.tensor([expert]))[0].to(site.x_1TI.dtype)


@dataclass(frozen=True, eq=False)
class _Graph:
    """Attribution graph with the incoming edges of the nodes traced so far."""

    forward_pass: LinearizedPass
    sources: Sources
    token: int
    logit: float
    traced: tuple[int, ...]
    """Source index of each traced node. The target comes first, with index -1."""
    weights_FS: Tensor
    """Direct contribution of each source to each traced node."""
    constants: float
    """Contribution of the biases to the target."""

    @classmethod
    def start(cls, forward_pass: LinearizedPass, token: int) -> _Graph:
        """Return the graph of the target and its direct contributions.

        Raises:
            UserError: the architecture cannot be linearised.
        """
        sources = Sources.from_pass(forward_pass)
        seed_1V = target_seed(forward_pass.logits_1V, token)
        logit = float((forward_pass.logits_1V.detach() * seed_1V).sum())
        contributions = forward_pass.contributions([forward_pass.logits_1V], [seed_1V.unsqueeze(0)])
        row_S, constants = sources.flatten(contributions)[0], float(contributions.constants_R[0])
        graph = cls(forward_pass, sources, token, logit, (-1,), row_S.unsqueeze(0), constants)
        graph.check_sum()
        return graph

    @property
    def rounding(self) -> float:
        """Sum of all direct contributions minus the logit."""
        return float(self.weights_FS[0].sum()) + self.constants - self.logit

    @property
    def experts_with_inputs(self) -> tuple[int, ...]:
        """Traced experts with incoming edges. An expert activated by biases alone is an origin of paths."""
        sizes_F = self.weights_FS.abs().sum(1).tolist()
        return tuple(index for index, size in zip(self.traced[1:], sizes_F[1:], strict=True) if size > 0)

    def check_sum(self) -> None:
        """Check that the direct contributions sum to the logit.

        Raises:
            UserError: they do not, because the architecture cannot be linearised.
        """
        size = float(self.weights_FS[0].abs().sum()) + abs(self.constants)
        tolerance = TOLERANCE.get(self.forward_pass.embedding_1TW.dtype, HALF_PRECISION_TOLERANCE)
        if not abs(self.rounding) <= tolerance * size:  # also raised for NaN
            raise UserError(
                f"Circuits are not supported for this architecture: contributions sum to "
                f"{self.logit + self.rounding:.4g} instead of the logit {self.logit:.4g}, so an operation between its "
                "MLPs is not linearised."
            )

    def input_shares(self) -> InputShares:
        """Normalised incoming edges of the traced nodes."""
        return input_shares(self.traced, self.weights_FS)

    def next_experts(self, count: int) -> list[int]:
        """The most influential experts that are not traced yet."""
        influence_S = total_influence(self.input_shares())
        traced = set(self.traced)
        ranked = influence_S.argsort(descending=True, stable=True).tolist()
        untraced = (index for index in ranked if self.sources.kinds[index] == "expert" and index not in traced)
        return [index for index, _ in zip(untraced, range(count), strict=False) if influence_S[index] > 0]

    def with_inputs(self, experts: Sequence[int]) -> _Graph:
        """Return the graph with the incoming edges of more experts, computed in one backward pass."""
        seeds: dict[int, Tensor] = {}
        for row, index in enumerate(experts):
            node = self.sources.nodes[index]
            assert node.layer is not None
            site = self.forward_pass.sites[node.layer]
            seed_R1TI = seeds.setdefault(node.layer, site.x_1TI.new_zeros(len(experts), *site.x_1TI.shape))
            assert node.expert is not None
            seed_R1TI[row, 0, node.position] = gate_row(site, node.expert)
        inputs = [self.forward_pass.sites[layer].x_1TI for layer in seeds]
        contributions = self.forward_pass.contributions(inputs, list(seeds.values()))
        rows_FS = self.sources.flatten(contributions)
        return replace(self, traced=(*self.traced, *experts), weights_FS=torch.cat([self.weights_FS, rows_FS]))


def _trace_experts(graph: _Graph, limit: int, callbacks: Callbacks) -> _Graph:
    rows = batch_rows(graph.forward_pass.embedding_1TW.shape[1])
    num_experts = sum(kind == "expert" for kind in graph.sources.kinds)
    while experts := graph.next_experts(min(rows, limit + 1 - len(graph.traced))):
        callbacks.check_cancelled()
        callbacks.on_progress(len(graph.traced) - 1, min(limit, num_experts), "")
        graph = graph.with_inputs(experts)
    return graph


def _effects(live: LinearizedPass, token: int) -> dict[NodeKey, float]:
    """Contribution of every source to the target along all paths."""
    sources = Sources.from_pass(live)
    seed_1V = target_seed(live.logits_1V, token)
    row_S = sources.flatten(live.contributions([live.logits_1V], [seed_1V.unsqueeze(0)]))[0]
    return {node.key: value for node, value in zip(sources.nodes, row_S.tolist(), strict=True)}


def _build_circuit(
    language_model: LanguageModel,
    runs: Sequence[Run],
    config: CircuitConfig,
    ids: Sequence[int],
    graph: _Graph,
    effects: Mapping[NodeKey, float],
) -> Circuit:
    inputs = graph.input_shares()
    influence_S = total_influence(inputs)
    is_expert_S = torch.tensor([kind == "expert" for kind in graph.sources.kinds])
    pruned = prune(inputs, influence_S, is_expert_S, config.nodes, config.share, config.edge_share)
    names = {run.config.layer: run.name for run in runs}
    nodes = [_node(graph, index, names, float(influence_S[index]), effects) for index in pruned.nodes]
    origin_influence_S = influence_S.clone()
    origin_influence_S[list(graph.experts_with_inputs)] = 0
    direct: dict[Source, float] = {**graph.sources.by_kind(graph.weights_FS[0]), "bias": graph.constants}
    texts = token_texts(language_model.tokenizer, list(ids))
    target, candidates = _next_tokens(language_model, graph.forward_pass.logits_1V[0].detach(), graph.token)
    return Circuit(
        runs=tuple(run.name for run in runs),
        layers=tuple(run.config.layer for run in runs),
        tokens=tuple(CircuitToken(*token, start=i == 0) for i, token in enumerate(zip(ids, texts, strict=True))),
        target=target,
        candidates=candidates,
        nodes=(_target_node(len(ids) - 1, graph.logit), *nodes),
        edges=_edges(graph, pruned),
        direct=direct,
        origins=graph.sources.by_kind(origin_influence_S),
        num_nodes=len(influence_S),
        retained_influence=pruned.influence,
        retained_edge_influence=pruned.edge_influence,
        rounding=graph.rounding,
    )


def _target_node(position: int, logit: float) -> CircuitNode:
    return CircuitNode("target", position, None, None, None, None, 1.0, logit, logit, traced=True)


def _node(
    graph: _Graph, index: int, names: Mapping[int, str], influence: float, effects: Mapping[NodeKey, float]
) -> CircuitNode:
    source, direct = graph.sources.nodes[index], float(graph.weights_FS[0, index])
    return CircuitNode(
        kind=source.kind,
        position=source.position,
        layer=source.layer,
        run=None if source.layer is None else names.get(source.layer),
        expert=source.expert,
        coefficient=source.coefficient,
        influence=influence,
        direct=direct,
        # The passes' active experts can only differ where two gate values are exactly equal.
        effect=effects.get(source.key, direct),
        traced=index in graph.traced,
    )


def _edges(graph: _Graph, pruned: PrunedGraph) -> tuple[CircuitEdge, ...]:
    rows = {index: row for row, index in enumerate(graph.traced)}
    numbers = {index: number for number, index in enumerate([-1, *pruned.nodes])}
    return tuple(
        CircuitEdge(numbers[source], numbers[target], float(graph.weights_FS[rows[target], source]), influence)
        for source, target, influence in pruned.edges
    )


def _next_tokens(
    language_model: LanguageModel, logits_V: Tensor, token: int
) -> tuple[NextToken, tuple[NextToken, ...]]:
    probabilities_V, above_V = logits_V.softmax(-1), logits_V - logits_V.mean()
    best: list[int] = logits_V.topk(min(NUM_CANDIDATES, len(logits_V))).indices.tolist()
    texts = single_texts(language_model, {*best, token})
    tokens = {id: NextToken(id, texts[id], float(probabilities_V[id]), float(above_V[id])) for id in {*best, token}}
    return tokens[token], tuple(tokens[id] for id in best)
