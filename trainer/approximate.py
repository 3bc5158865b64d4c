"""A run whose gate finds its experts by an index over the flat gate of another run, of which it has all else.

The index is made, and how much it looks at is chosen, on one half of a text; what it then finds is measured on the
other half.

Shapes: T tokens, I input width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from sqlalchemy import Engine
from torch import Tensor

from trainer.activations import capture_sequences
from trainer.config import Config, Count, RunName, Size, TextConfig, TrainConfig
from trainer.errors import UserError
from trainer.files import whole_folder
from trainer.gate_config import FLAT, GateConfig, GateSizes, groups_that_hold
from trainer.language_model import LanguageModel
from trainer.layers.gates import FlatGate, Gate
from trainer.layers.gates.cells import cells_of, found_by_probes
from trainer.layers.gates.projected import axes_of, found_by, numbers_for, projected_of
from trainer.layers.registry import build_layer
from trainer.layers.sparse import SparseLayer
from trainer.registration import register_run
from trainer.run import RUN_FILE, Run, runs_folder
from trainer.text import sequences

Index = Literal["projected", "cells"]

SPARE = 4
"""Candidates of a projected gate, in units of K."""


class ApproximateConfig(Config):
    """How an index is made over a run's gate."""

    name: RunName
    """Name of the new run."""
    text: TextConfig
    tokens: Count
    """Tokens to read: half of them to make the index, half to measure."""
    index: Index = "projected"
    """projected: few numbers of the input choose candidates. cells: experts that score alike are in a cell, and the
    cells that promise most are looked into."""
    cells: Size | None = None
    """By default about √N."""
    wanted: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Share of the experts that the flat gate chooses that is to be found: decides how many cells or numbers."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the order of the text."""


@dataclass(frozen=True)
class Approximation:
    """What ``mxd approximate`` reports."""

    run: str
    of: str
    num_experts: int
    k: int
    gate: str
    """With what it looks at."""
    found: float
    """Share of the experts that the flat gate chooses, on text that nothing was chosen by."""
    mass_found: float
    """Share of their coefficients."""
    arithmetic: float
    """Of what the flat gate's takes."""
    tokens: int
    """On which this was measured."""


def approximate(
    run: Run, config: ApproximateConfig, language_model: LanguageModel, data: Path, store: Engine
) -> Approximation:
    """Make a run of another one, with cells.

    Raises:
        UserError: there is a run of this name, the other has no flat gate, the text is too short or the cells do not
            go together with N and K.
    """
    folder = runs_folder(data) / config.name
    if (folder / RUN_FILE).exists():
        raise UserError(f"The run {config.name} exists; choose another --name.")
    layer = run.layer
    gate, k = layer.gate, layer.config.k
    if not isinstance(gate, FlatGate) or "cells" not in layer.gates:
        raise UserError(f"The run {run.name} has no flat gate with a top-k, so there is nothing to approximate.")
    chosen_TI, measured_TI = inputs_of(run, config.text, config.tokens, config.seed, language_model).chunk(2)
    made = _INDEXES[config.index](gate, chosen_TI, measured_TI, k, config)
    _write(run, config.name, _with_gate(layer, made), folder)
    register_run(Run.load(folder, data), store)
    sizes = GateSizes(made.config, gate.num_experts, gate.input_width)
    return Approximation(
        run=config.name,
        of=run.name,
        num_experts=gate.num_experts,
        k=k,
        gate=made.config.in_words(),
        found=made.found,
        mass_found=made.mass,
        arithmetic=sizes.flops / GateSizes(FLAT, gate.num_experts, gate.input_width).flops,
        tokens=len(measured_TI),
    )


class _Made(NamedTuple):
    gate: Gate
    config: GateConfig
    found: float
    mass: float


def _cells(gate: FlatGate, chosen_TI: Tensor, measured_TI: Tensor, k: int, config: ApproximateConfig) -> _Made:
    cells = cells_of(gate, chosen_TI, GateConfig(gate="cells", groups=config.cells), k)
    number, size, _ = cells.sizes
    probed = found_by_probes(cells, gate, chosen_TI, k).probes_for(config.wanted)
    probed = max(probed, groups_that_hold(k, gate.num_experts, size))
    found = found_by_probes(cells, gate, measured_TI, k)
    made = GateConfig(gate="cells", groups=number, chosen_groups=probed)
    return _Made(cells, made, found.chosen_G[probed - 1].item(), found.mass_G[probed - 1].item())


def _projected(gate: FlatGate, chosen_TI: Tensor, measured_TI: Tensor, k: int, config: ApproximateConfig) -> _Made:
    if config.cells is not None:
        raise UserError("A projected gate has no cells; leave --cells out, or give --index cells.")
    axes, candidates = axes_of(gate, chosen_TI), min(SPARE * k, gate.num_experts)
    numbers = numbers_for(gate, axes, chosen_TI, k, candidates, config.wanted)
    projected = projected_of(gate, axes, numbers, candidates)
    found = found_by(projected, gate, measured_TI, k)
    made = GateConfig(gate="projected", numbers=numbers, candidates=candidates)
    return _Made(projected, made, found.chosen, found.mass)


_INDEXES: dict[Index, Callable[[FlatGate, Tensor, Tensor, int, ApproximateConfig], _Made]] = {
    "cells": _cells,
    "projected": _projected,
}


def inputs_of(run: Run, text: TextConfig, tokens: int, seed: int, language_model: LanguageModel) -> Tensor:
    """What a run's layer reads of a text, [T, I], on the CPU."""
    rows = sequences(text, language_model.tokenizer, tokens, seed, "shuffled")
    captured = capture_sequences(language_model, [run.config.layer], np.stack(list(rows)))
    return captured.read_by(run.layer).cpu()


def _with_gate(layer: SparseLayer, index: _Made) -> SparseLayer:
    """The same layer but for its gate."""
    with torch.device("meta"):
        made = build_layer(layer.config.model_copy(update={"gate": index.config}))
    kept = {name: value for name, value in layer.state_dict().items() if not name.startswith("gate.")}
    made.load_state_dict(kept | {f"gate.{name}": value for name, value in index.gate.state_dict().items()}, assign=True)
    return made


def _write(run: Run, name: str, layer: SparseLayer, folder: Path) -> None:
    changes = {"name": name, "language_model": run.language_model_source, "gate": layer.config.gate}
    config = TrainConfig.model_validate(run.config.model_dump() | changes)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder) as partial:
        run.copy_to(partial, config)
        layer.save(partial)
