"""Check of a circuit: every number that it predicts is measured in the language model.

Each shown node is ablated on its own, in batches. The pass reads the target and the scores of all shown experts, so it
measures the node and all its edges. Further passes ablate the shown experts together, and all others.

Shapes: B rows, T tokens, K active, O output width, P = B * T tokens of all rows, N nodes that are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import StatisticsError, correlation, mean

import torch
from torch import Tensor

from mxd.trainer.analysis.circuits.graph import (
    AblationEffect,
    Agreement,
    Circuit,
    CircuitCheck,
    ExpertAtToken,
    GroupEffect,
    Sufficiency,
)
from mxd.trainer.analysis.circuits.scores import graph_scores
from mxd.trainer.analysis.circuits.tracing import read_circuit
from mxd.trainer.analysis.effects import Reading, changed_forward, layers_of
from mxd.trainer.config.analysis import CircuitConfig, Errors
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.edited_mlp import LayerPass
from mxd.trainer.language_model.loading import float32_weights
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.base import Routing, SparseLayer
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
class Without:
    """Row in which experts are ablated."""

    experts: frozenset[Place] = frozenset()

    @property
    def first(self) -> int:
        """First layer that is changed."""
        return min((layer for layer, _, _ in self.experts), default=0)


@dataclass(frozen=True)
class Only:
    """Row in which all experts but these are mean-ablated, or multiplied by random numbers if there is a seed.

    Experts on the start token stay: they hold up the model's attention to it, whatever the text.
    """

    experts: frozenset[Place]
    seed: int | None = None

    first = 0


Row = Without | Only


def check(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: CircuitConfig,
    circuit: Circuit,
    callbacks: Callbacks = NO_CALLBACKS,
) -> CircuitCheck:
    """Measure every predicted change of a circuit.

    Args:
        runs: runs that the circuit was traced with.
        config: prompt and settings that it was traced with.
        circuit: result of ``trace``.
        callbacks: progress in forward passes, and cancellation.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``trace``; or the circuit was traced with other runs or was changed.
        CancelledError: the task was cancelled.
    """
    chosen = [runs] if isinstance(runs, Run) else list(runs)
    names = {run.name: run.config.layer for run in chosen}
    if missing := [name for name in circuit.runs if name not in names]:
        raise UserError(f"The circuit was traced with {missing[0]}, which is missing. Check it with the same runs.")
    if any(not 0 <= end < len(circuit.nodes) for edge in circuit.edges for end in (edge.source, edge.target)):
        raise UserError("An edge of the circuit has no node. Check a circuit as it was traced.")
    reading = read_circuit(language_model, chosen, config.model_copy(update={"target": circuit.target}))
    places = [(names[at.run], at.position, at.expert) for at in circuit.experts]
    shown = frozenset(places)
    rows: list[Row] = [Without(), *(Without(frozenset([place])) for place in places)]
    rows += [Without(shown), Only(frozenset()), Only(shown), *(Only(shown, seed) for seed in range(DRAWS))]
    with float32_weights(language_model):
        sparse_layers = layers_of(language_model, chosen)
        measuring = Measuring(language_model, sparse_layers, reading, config.errors, places)
        _check_active(measuring, shown)
        controls = [Only(it) for it in _random_sets(measuring, shown)]
        values = measuring.run([*rows, *controls], callbacks)
        scores = graph_scores(language_model, sparse_layers, reading, config.errors, places)
    changes = (values - values[0]).tolist()
    targets = values[:, 0].tolist()
    joint, nothing, only, *rest = targets[1 + len(places) : len(rows)]
    edges = tuple(changes[edge.source][edge.target] for edge in circuit.edges)
    left = tuple(edge.target > 0 and not bool(values[edge.source, len(places) + edge.target]) for edge in circuit.edges)
    experts = [(circuit.nodes[index].predicted, changes[index][0]) for index in range(1, 1 + len(places))]
    return CircuitCheck(
        measured=(None, *(changes[index][0] for index in range(1, 1 + len(places)))),
        edges=edges,
        left_top_k=left,
        experts=agreement(experts),
        between=agreement(
            (edge.predicted / activation, change / activation)
            for edge, change in zip(circuit.edges, edges, strict=True)
            if (activation := circuit.nodes[edge.target].activation)
        ),
        joint=AblationEffect(sum(predicted for predicted, _ in experts), joint - targets[0]),
        sufficiency=Sufficiency(
            without_experts=nothing,
            mean=only,
            random_mean=mean(rest),
            random_worst=max(rest, key=lambda value: abs(value - targets[0])),
            draws=DRAWS,
            control=mean(targets[len(rows) :]) if controls else only,
        ),
        scores=scores,
    )


def ablate(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: CircuitConfig,
    groups: Sequence[Sequence[ExpertAtToken]],
    read: Sequence[ExpertAtToken] = (),
    callbacks: Callbacks = NO_CALLBACKS,
) -> tuple[GroupEffect, ...]:
    """Measure the change of the target, and of the activations of the experts in ``read``, when each group is ablated.

    The experts of a group are ablated jointly.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``trace``; or an expert is not in these runs, or is not active on its token.
        CancelledError: the task was cancelled.
    """
    chosen = [runs] if isinstance(runs, Run) else list(runs)
    reading = read_circuit(language_model, chosen, config)
    layers = {run.name: run.config.layer for run in chosen}
    for expert in (*read, *(expert for group in groups for expert in group)):
        if expert.run not in layers:
            raise UserError(f"Unknown run {expert.run!r}. The circuit has: {', '.join(layers)}.")
        if not 0 <= expert.position < len(reading.fed_ids):
            raise UserError(
                f"Unknown token position {expert.position}. The circuit has tokens 0 to {len(reading.fed_ids) - 1}."
            )
    with float32_weights(language_model):
        places = [(layers[it.run], it.position, it.expert) for it in read]
        measuring = Measuring(language_model, layers_of(language_model, chosen), reading, config.errors, places)
        rows = [Without(frozenset((layers[it.run], it.position, it.expert) for it in group)) for group in groups]
        for row in rows:
            _check_active(measuring, row.experts)
        values = measuring.run([Without(), *rows], callbacks)
    changes = (values[1:] - values[0]).tolist()
    return tuple(GroupEffect(target, tuple(rest[len(places) :])) for target, *rest in changes)


def _check_active(measuring: Measuring, experts: frozenset[Place]) -> None:
    if inactive := experts - measuring.active:
        named = ", ".join(f"{expert} on token {position}" for _, position, expert in sorted(inactive))
        raise UserError(f"Not all of these experts are active: {named}. Choose experts of the circuit.")


class Measuring:
    """Forward passes of a prompt with experts ablated."""

    def __init__(
        self,
        language_model: LanguageModel,
        sparse_layers: dict[int, SparseLayer],
        reading: Reading,
        errors: Errors,
        places: Sequence[Place] = (),
    ) -> None:
        self.language_model = language_model
        self.sparse_layers = sparse_layers
        self.errors = errors
        self.places = places
        """Experts whose scores and activations are read."""
        active: set[Place] = set()

        def note(layer: int, layer_pass: LayerPass) -> None:
            positions_P, columns_P = (layer_pass.routing.activations_TK > 0).nonzero(as_tuple=True)
            experts_P = layer_pass.routing.indices_TK[positions_P, columns_P]
            active.update((layer, *pair) for pair in zip(positions_P.tolist(), experts_P.tolist(), strict=True))

        original = changed_forward(language_model, sparse_layers, reading, errors, note, 1)
        self.reading = reading.with_token(original)
        self.active = frozenset(active)
        """All active experts of the unchanged text."""

    def run(self, rows: Sequence[Row], callbacks: Callbacks = NO_CALLBACKS) -> Tensor:
        """Target, and the scores and activations of ``places``, for each row, [rows, 1 + 2 N], on the CPU."""
        size = max(1, min(MAX_ROWS, MAX_BATCH_TOKENS // len(self.reading.fed_ids)))
        order = sorted(range(len(rows)), key=lambda index: rows[index].first)
        values = torch.zeros(len(rows), 1 + 2 * len(self.places))
        for start in range(0, len(order), size):
            callbacks.check_cancelled()
            callbacks.on_progress(start, len(rows), "")
            batch = order[start : start + size]
            values[batch] = self._batch([rows[index] for index in batch])
        return values

    def _batch(self, rows: Sequence[Row]) -> Tensor:
        tokens = len(self.reading.fed_ids)

        def change(layer: int, layer_pass: LayerPass) -> Tensor | None:
            routing = layer_pass.routing
            if len(routing.indices_TK) != len(rows) * tokens:
                return None  # a layer before the first change, computed for one row
            weights_BTK = torch.stack(
                [
                    _removed(row, layer, part_TK)
                    for row, part_TK in zip(rows, routing.indices_TK.split(tokens), strict=True)
                ]
            )
            if not weights_BTK.any():
                return None
            removed = Routing(routing.activations_TK * weights_BTK.flatten(0, 1), routing.indices_TK)
            removed_BTO: Tensor = layer_pass.contribution(removed).unflatten(0, (len(rows), tokens))
            for index, row in enumerate(rows):
                if isinstance(row, Only) and row.seed is None:
                    removed_BTO[index, 1:] -= removed_BTO[index, 1:].mean(0)
            return -removed_BTO.flatten(0, 1)

        forward = changed_forward(
            self.language_model,
            self.sparse_layers,
            self.reading,
            self.errors,
            change,
            len(rows),
            min(row.first for row in rows),
        )
        values = [self.reading.value(forward)]
        values += [forward.score(*place) for place in self.places]
        values += [forward.activation(*place) for place in self.places]
        return torch.stack([value_B.expand(len(rows)).cpu() for value_B in values], dim=1)


def _removed(row: Row, layer: int, indices_TK: Tensor) -> Tensor:
    """Share of each active expert's contribution that is removed, [T, K]."""
    named_TK = torch.zeros_like(indices_TK, dtype=torch.float32)
    for at, position, expert in row.experts:
        if at == layer:
            named_TK[position] += indices_TK[position] == expert
    if isinstance(row, Without):
        return named_TK
    removed_TK = 1 - named_TK
    removed_TK[0] = 0
    if row.seed is not None:
        generator = torch.Generator().manual_seed(row.seed * 1000 + layer)
        removed_TK = removed_TK * torch.rand(indices_TK.shape, generator=generator).to(removed_TK)
    return removed_TK


def _random_sets(measuring: Measuring, shown: frozenset[Place]) -> list[frozenset[Place]]:
    """Random sets of as many other active experts as are shown."""
    others = sorted(measuring.active - shown)
    generator = torch.Generator().manual_seed(0)
    draws = (torch.randperm(len(others), generator=generator)[: len(shown)].tolist() for _ in range(DRAWS))
    return [frozenset(others[index] for index in draw) for draw in draws] if others else []


def agreement(pairs: Iterable[tuple[float, float]]) -> Agreement:
    """Compare predicted with measured changes."""
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
