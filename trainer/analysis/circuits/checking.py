"""Check of a circuit: every number that it predicts is measured in the language model.

Each shown node is ablated on its own, in batches. The pass reads the target and the scores of all shown experts, so it
measures the node and all its edges. Further passes ablate the shown experts together, and all others.

**Scores.** The replacement and completeness score are circuit-tracer's (``compute_graph_scores`` of its ``graph``
module). Their graph holds direct effects, which pass through attention and norms but through no other node. So they are
computed in a pass whose MLP outputs are constants. Nodes are the shown experts, an error per layer and token, and the
tokens. A layer's error is its MLP's output minus the reconstruction, and the whole output of an MLP without a run. We
differentiate attention patterns and norms, which circuit-tracer freezes.

Shapes: B rows, T tokens, K active, O output width, P = B * T tokens of all rows, N nodes that are read, F shown
experts, E errors, S = F + E + T sources.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import isfinite
from statistics import StatisticsError, correlation, mean, stdev

import torch
from torch import Tensor
from torch.nn import functional

from mxd.trainer.analysis.circuits.graph import (
    AblationEffect,
    Agreement,
    Circuit,
    CircuitCheck,
    ExpertAtToken,
    GraphScores,
    GroupEffect,
    Sufficiency,
    verdict_of,
)
from mxd.trainer.analysis.circuits.tracing import read_circuit
from mxd.trainer.analysis.effects import (
    Forward,
    Layers,
    Reading,
    changed_forward,
    differentiable_forward,
    edited_mlps,
    gradients_of,
    layers_of,
)
from mxd.trainer.analysis.results import stronger_than
from mxd.trainer.config.analysis import CircuitConfig, ContinuationTarget, Errors, ExpertTarget
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.kv_cache import variant_tokens
from mxd.trainer.language_model.loading import float32_weights
from mxd.trainer.language_model.mlp_hooks import LayerPass, Mlp, MlpFunction
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import Routing
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

MAX_BATCH_TOKENS = 1024
"""Maximum number of tokens in a batch of measurements, unless one text has more."""
MAX_ROWS = 16
MIN_CORRELATED = 5
"""Fewest changes for which a correlation and a slope are computed."""
DRAWS = 8
"""Random draws of the test of sufficiency, and random sets of its control."""

Place = tuple[int, int, int]
"""Layer, position and expert."""


@dataclass(frozen=True)
class Row:
    """A row of a batch, in which some experts are ablated.

    With ``only`` they are kept, and all others are mean-ablated, or multiplied by random numbers if there is a seed.
    Experts on the start token stay: they hold up the model's attention to it, whatever the text.
    """

    experts: frozenset[Place] = frozenset()
    only: bool = False
    seed: int | None = None

    @property
    def first(self) -> int:
        """The first layer that is changed."""
        return 0 if self.only else min((layer for layer, _, _ in self.experts), default=0)


def check(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: CircuitConfig,
    circuit: Circuit,
    callbacks: Callbacks = NO_CALLBACKS,
    ids: Sequence[int] | None = None,
) -> CircuitCheck:
    """Measure every predicted change of a circuit.

    Args:
        runs: runs that the circuit was traced with.
        config: prompt and settings that it was traced with.
        circuit: result of ``trace``.
        callbacks: progress in forward passes, and cancellation.
        ids: as ``trace``.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``trace``; or the circuit was traced with other runs or was changed.
    """
    chosen = [runs] if isinstance(runs, Run) else list(runs)
    names = {run.name: run.config.layer for run in chosen}
    if missing := [name for name in circuit.runs if name not in names]:
        raise UserError(f"The circuit was traced with {missing[0]}, which is missing. Check it with the same runs.")
    if any(not 0 <= end < len(circuit.nodes) for edge in circuit.edges for end in (edge.source, edge.target)):
        raise UserError("An edge of the circuit has no node. Check a circuit as it was traced.")
    reading = read_circuit(language_model, chosen, config.model_copy(update={"target": circuit.target}), ids)
    places = [(names[at.run], at.position, at.expert) for at in circuit.experts]
    shown = frozenset(places)
    rows = [Row(), *(Row(frozenset([place])) for place in places), Row(shown)]
    rows += [Row(only=True), Row(shown, only=True), *(Row(shown, only=True, seed=seed) for seed in range(DRAWS))]
    with float32_weights(language_model.module):
        sparse_layers = layers_of(language_model, chosen)
        measuring = Measuring(reading, sparse_layers, config.errors, places)
        _check_active(measuring, shown)
        others, generator = sorted(measuring.active - shown), torch.Generator().manual_seed(0)
        draws = [torch.randperm(len(others), generator=generator)[: len(shown)].tolist() for _ in range(DRAWS)]
        # Random sets of as many other active experts as are shown.
        controls = [Row(frozenset(others[index] for index in draw), only=True) for draw in draws] if others else []
        values = measuring.run([*rows, *controls], callbacks)
        scores = graph_scores(reading, sparse_layers, config.errors, places, callbacks)
    changes = (values - values[0]).tolist()
    targets = values[:, 0].tolist()
    joint, nothing, only, *rest = targets[1 + len(places) : len(rows)]
    edges = tuple(changes[edge.source][edge.target] for edge in circuit.edges)
    left = tuple(edge.target > 0 and not bool(values[edge.source, len(places) + edge.target]) for edge in circuit.edges)
    measured = [target for target, *_ in changes[1 : 1 + len(places)]]
    experts = [(node.predicted, change) for node, change in zip(circuit.nodes[1:], measured, strict=False)]
    random = targets[len(rows) :] if controls else [only]
    found = (
        agreement(experts),
        agreement(
            (edge.predicted / activation, change / activation)
            for edge, change in zip(circuit.edges, edges, strict=True)
            if (activation := circuit.nodes[edge.target].activation)
        ),
        AblationEffect(sum(predicted for predicted, _ in experts), joint - targets[0]),
        Sufficiency(
            without_experts=nothing,
            mean=only,
            random_mean=mean(rest),
            random_worst=max(rest, key=lambda value: abs(value - targets[0])),
            draws=DRAWS,
            control=mean(random),
            control_sd=stdev(random) if controls else 0.0,
        ),
        scores,
    )
    return CircuitCheck((None, *measured), edges, left, *found, verdict_of(circuit, *found))


def ablate(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: CircuitConfig,
    groups: Sequence[Sequence[ExpertAtToken]],
    read: Sequence[ExpertAtToken] = (),
    callbacks: Callbacks = NO_CALLBACKS,
    ids: Sequence[int] | None = None,
    controls: Sequence[ExpertAtToken] = (),
) -> tuple[GroupEffect, ...]:
    """Measure the change of the target, and of the activations of the experts in ``read``, when each group is ablated.

    The experts of a group are ablated jointly. The changes of activations are compared with those when each of
    ``controls`` is ablated by itself. ``ids``: as ``trace``.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``trace``; or an expert is not in these runs, or is not active on its token.
    """
    chosen = [runs] if isinstance(runs, Run) else list(runs)
    reading = read_circuit(language_model, chosen, config, ids)
    layers = {run.name: run.config.layer for run in chosen}
    for expert in (*read, *controls, *(expert for group in groups for expert in group)):
        if expert.run not in layers:
            raise UserError(f"Unknown run {expert.run!r}. The circuit has: {', '.join(layers)}.")
        if not 0 <= expert.position < len(reading.fed_ids):
            raise UserError(
                f"Unknown token position {expert.position}. The circuit has tokens 0 to {len(reading.fed_ids) - 1}."
            )
    with float32_weights(language_model.module):
        places = [(layers[it.run], it.position, it.expert) for it in read]
        measuring = Measuring(reading, layers_of(language_model, chosen), config.errors, places)
        ablated = [*groups, *([control] for control in controls)]
        rows = [Row(frozenset((layers[it.run], it.position, it.expert) for it in group)) for group in ablated]
        for row in rows:
            _check_active(measuring, row.experts)
        values = measuring.run([Row(), *rows], callbacks)
    changes = (values[1:] - values[0]).tolist()
    found = [(target, rest[len(places) :]) for target, *rest in changes]
    others = [[abs(change) for change in activations] for _, activations in found[len(groups) :]]
    effects = []
    for target, activations in found[: len(groups)]:
        compared = [stronger_than(abs(own), [row[i] for row in others]) for i, own in enumerate(activations)]
        weaker, clear = tuple(weaker for weaker, *_ in compared), tuple(clear for *_, clear in compared)
        effects.append(GroupEffect(target, tuple(activations), weaker, clear))
    return tuple(effects)


class Measuring:
    """Forward passes of a prompt with experts ablated."""

    def __init__(self, reading: Reading, sparse_layers: Layers, errors: Errors, places: Sequence[Place] = ()) -> None:
        """The scores and activations of ``places`` are read too."""
        self.sparse_layers, self.errors, self.places = sparse_layers, errors, places
        active: set[Place] = set()

        def note(layer: int, layer_pass: LayerPass) -> None:
            positions_P, columns_P = (layer_pass.routing.activations_TK > 0).nonzero(as_tuple=True)
            experts_P = layer_pass.routing.indices_TK[positions_P, columns_P]
            active.update((layer, *pair) for pair in zip(positions_P.tolist(), experts_P.tolist(), strict=True))

        original = changed_forward(reading, sparse_layers, edited_mlps(sparse_layers, errors, note), 1)
        self.reading = reading.with_token(original)
        self.active = frozenset(active)
        """All active experts of the unchanged text."""

    def run(self, rows: Sequence[Row], callbacks: Callbacks = NO_CALLBACKS) -> Tensor:
        """Target, and the scores and activations of ``places``, for each row, [rows, 1 + 2 N], on the CPU."""
        tokens, measure = len(self.reading.fed_ids), self._batch
        size = max(1, min(MAX_ROWS, MAX_BATCH_TOKENS // tokens))
        if self._are_variants(rows):
            size, measure = MAX_BATCH_TOKENS, self._variants
        order = sorted(range(len(rows)), key=lambda index: rows[index].first)
        values = torch.zeros(len(rows), 1 + 2 * len(self.places))
        for start in range(0, len(order), size):
            callbacks.check_cancelled()
            callbacks.on_progress(start, len(rows), "")
            batch = order[start : start + size]
            values[batch] = measure([rows[index] for index in batch])
        return values

    def _are_variants(self, rows: Sequence[Row]) -> bool:
        """True if the rows differ on the last token alone, and only its prediction is read."""
        last, target = len(self.reading.fed_ids) - 1, self.reading.target
        places = [place for row in rows for place in row.experts]
        return (
            not self.places
            and not isinstance(target, ContinuationTarget | ExpertTarget)
            and not any(row.only for row in rows)
            and all(position == last for _, position, _ in places)
            and bool(places)
            and self.reading.language_model.can_append_variants(min(layer for layer, _, _ in places))
        )

    @torch.no_grad()
    def _variants(self, rows: Sequence[Row]) -> Tensor:
        """Target of each row as a variant of the last token, which costs one token in place of a text, [rows, 1]."""
        language_model, count = self.reading.language_model, len(rows)

        def change(layer: int, layer_pass: LayerPass) -> Tensor | None:
            experts = [[expert for at, _, expert in row.experts if at == layer] for row in rows]
            if not any(experts):
                return None
            tokens = layer_pass.at(slice(-count, None))
            activations_RK, indices_RK = tokens.routing
            listed = [torch.tensor(own, dtype=indices_RK.dtype, device=indices_RK.device) for own in experts]
            ablated_RK = torch.stack([torch.isin(*each) for each in zip(indices_RK, listed, strict=True)])
            removed_RO = tokens.contribution(Routing(activations_RK * ablated_RK, indices_RK))
            return functional.pad(-removed_RO, (0, 0, layer_pass.x_STI.shape[1] - count, 0))

        first = min((layer for row in rows for layer, _, _ in row.experts), default=0)
        position_R = torch.full((count,), len(self.reading.fed_ids) - 1)
        with ExitStack() as stack:
            variants = stack.enter_context(variant_tokens(language_model.architecture.blocks, first, position_R))
            language_model.linear_kernels.apply(stack)
            stack.enter_context(language_model.replace_mlps(edited_mlps(self.sparse_layers, self.errors, change)))
            language_model.residual(torch.tensor([self.reading.fed_ids]))
        logits_RSV = language_model.unembed(variants[0]).unsqueeze(1)
        return self.reading.value(Forward(self.sparse_layers, {}, {}, None, logits_RSV)).cpu().unsqueeze(1)

    def _batch(self, rows: Sequence[Row]) -> Tensor:
        tokens = len(self.reading.fed_ids)

        def change(layer: int, layer_pass: LayerPass) -> Tensor | None:
            routing = layer_pass.routing
            if len(routing.indices_TK) != len(rows) * tokens:
                return None  # a layer before the first change, computed for one row
            parts = zip(rows, routing.indices_TK.split(tokens), strict=True)
            weights_BTK = torch.stack([_removed(row, layer, part_TK) for row, part_TK in parts])
            if not weights_BTK.any():
                return None
            removed = Routing(routing.activations_TK * weights_BTK.flatten(0, 1), routing.indices_TK)
            removed_BTO: Tensor = layer_pass.contribution(removed).unflatten(0, (len(rows), tokens))
            for index, row in enumerate(rows):
                if row.only and row.seed is None:
                    removed_BTO[index, 1:] -= removed_BTO[index, 1:].mean(0)
            return -removed_BTO.flatten(0, 1)

        functions, first = edited_mlps(self.sparse_layers, self.errors, change), min(row.first for row in rows)
        forward = changed_forward(self.reading, self.sparse_layers, functions, len(rows), first)
        values = [self.reading.value(forward)]
        values += [forward.score(*place) for place in self.places]
        values += [forward.activation(*place) for place in self.places]
        return torch.stack([value_B.expand(len(rows)).cpu() for value_B in values], dim=1)


def _check_active(measuring: Measuring, experts: frozenset[Place]) -> None:
    if inactive := experts - measuring.active:
        named = ", ".join(f"{expert} on token {position}" for _, position, expert in sorted(inactive))
        raise UserError(f"Not all of these experts are active: {named}. Choose experts of the circuit.")


def _removed(row: Row, layer: int, indices_TK: Tensor) -> Tensor:
    """Share of each active expert's contribution that is removed, [T, K]."""
    named_TK = torch.zeros_like(indices_TK, dtype=torch.float32)
    for at, position, expert in row.experts:
        if at == layer:
            named_TK[position] += indices_TK[position] == expert
    if not row.only:
        return named_TK
    removed_TK = 1 - named_TK
    removed_TK[0] = 0
    if row.seed is not None:
        generator = torch.Generator().manual_seed(row.seed * 1000 + layer)
        removed_TK = removed_TK * torch.rand(indices_TK.shape, generator=generator).to(removed_TK)
    return removed_TK


def agreement(pairs: Iterable[tuple[float, float]]) -> Agreement:
    listed = list(pairs)
    predicted, measured = [pair[0] for pair in listed], [pair[1] for pair in listed]
    enough = len(listed) >= MIN_CORRELATED
    squares = sum(value * value for value in predicted)
    try:
        pearson = correlation(predicted, measured) if enough else None
    except StatisticsError:  # one of the two is constant
        pearson = None
    return Agreement(
        count=len(listed),
        correlation=_finite(pearson),
        same_sign=sum((a > 0) == (b > 0) for a, b in listed) / len(listed) if listed else None,
        slope=_finite(sum(a * b for a, b in listed) / squares) if enough and squares else None,
        largest_miss=max((abs(a - b) for a, b in listed), default=None),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


# ---------------------------------------------------------------- scores of the graph

SMALLEST_SUM = 1e-10
"""Smallest sum by which a row of effects is normalised, as in circuit-tracer."""


def graph_scores(
    reading: Reading, sparse_layers: Layers, errors: Errors, experts: Sequence[Place], callbacks: Callbacks
) -> GraphScores:
    """Scores of the graph of some active experts."""

    def constant(function: MlpFunction | None, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        computed = mlp() if function is None else function(x_BTI, mlp)
        return computed.detach().requires_grad_()

    layers, replaced = range(len(reading.language_model.architecture.blocks)), edited_mlps(sparse_layers, errors)
    functions = {layer: partial(constant, replaced.get(layer)) for layer in layers}
    forward = differentiable_forward(reading, sparse_layers, functions, from_embedding=True)
    parts = []
    with torch.no_grad():
        for layer, position, expert in experts:
            sparse_layer, x_1I = sparse_layers[layer], forward.inputs_BTI[layer][:, position].float()
            routing = sparse_layer.route(x_1I)
            own = Routing(routing.activations_TK * (routing.indices_TK == expert), routing.indices_TK)
            parts.append(sparse_layer.contribution(sparse_layer.dense_output(x_1I), own)[0])
        errors_LTO = {layer: output_BTO[0].float() for layer, output_BTO in forward.outputs_BTO.items()}
        for layer, sparse_layer in sparse_layers.items():
            errors_LTO[layer] = errors_LTO[layer] - sparse_layer(forward.inputs_BTI[layer][0].float()).output_TO

    def effects(value_B: Tensor) -> Tensor:
        """Direct effects of all sources on a value, [S]."""
        callbacks.check_cancelled()
        assert forward.embedding_BTW is not None
        *gradients, embedding_1TW = gradients_of(value_B, [*forward.outputs_BTO.values(), forward.embedding_BTW])
        at = {layer: gradient_1TO[0] for layer, gradient_1TO in zip(forward.outputs_BTO, gradients, strict=True)}
        from_experts = [
            at[layer][position] @ part_O for (layer, position, _), part_O in zip(experts, parts, strict=True)
        ]
        from_errors = [(at[layer] * error_TO).sum(1) for layer, error_TO in errors_LTO.items()]
        from_tokens = (embedding_1TW[0] * forward.embedding_BTW[0].detach().float()).sum(1)
        rows = [*([torch.stack(from_experts)] if from_experts else []), *from_errors, from_tokens]
        return torch.cat([row.cpu() for row in rows])

    effects_RS = torch.stack([*(effects(forward.activation(*at)) for at in experts), effects(reading.value(forward))])
    return GraphScores(*scores_of(effects_RS, len(experts), len(layers) * len(reading.fed_ids)))


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
