"""Choosing K of N experts by every kind of gate, on one device, in turn; and what the approximate one finds.

Made-up experts lie around centres, and tokens near experts, as those of fitted gates do: an index over rows without any
order could find nothing. How fast a gate is depends on sizes alone, what cells find on what is in them; so that is also
measured on a fitted gate.

Shapes: N experts, I input width, K active, B tokens of a batch, G groups or cells.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.approximate import inputs_of
from trainer.bench.step_memory import extra_peak_bytes
from trainer.bench.timing import Machine, in_turn, median_ratio
from trainer.config import TextConfig
from trainer.gate_config import GateConfig, GateSizes, groups_that_hold
from trainer.language_model import LanguageModel
from trainer.layers.gates import FlatGate, Gate, build_gate
from trainer.layers.gates.cells import CellsGate, Found, cells_of, found_by_probes
from trainer.layers.gates.projected import ProjectedGate, axes_of, found_by, projected_of
from trainer.layers.gates.two_level import TwoLevelGate
from trainer.run import Run

SPREAD = 0.7
"""How far experts lie from their centre, and tokens from their expert, in lengths of these."""
TOKENS = 2048
"""Made-up tokens, of which half makes the cells and half measures them; or I, where that is more."""
PROBES = (1, 2, 4, 8, 16, 32, 64)
PARTS_OF_WIDTH = (32, 16, 8, 4, 2)
"""Numbers of a projected gate, as I over these; the made-up gates are timed with a quarter."""
CANDIDATES = 4
"""Of a projected gate, in units of K."""


@dataclass(frozen=True)
class Way:
    """A gate of these sizes on such batches."""

    gate: str
    """With its groups."""
    microseconds_per_token: float
    """Processor time of one thread; on a GPU, of the clock."""
    speedup: float
    """Median over rounds of the flat gate's time over this one's."""
    flops_per_token: int
    flops_share: float
    """Of the flat gate's."""
    weight_bytes: int
    extra_bytes: float
    """At the peak, beyond weights."""


@dataclass(frozen=True)
class GatePoint:
    """All gates of a size, on batches of a size."""

    width: int
    num_experts: int
    k: int
    batch: int
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class FoundPoint:
    """What cells find of a flat gate's choice."""

    gate: str
    """Of which gate: made-up, or the name of a run."""
    width: int
    num_experts: int
    k: int
    cells: int
    probes: tuple[int, ...]
    found: tuple[float, ...]
    """With so many probes: share of the chosen experts."""
    mass: tuple[float, ...]
    """And of their coefficients."""
    wanted: float
    needed: int
    """Probes with which so much is found."""


@dataclass(frozen=True)
class ProjectedPoint:
    """What a projected gate finds of a flat gate's choice."""

    gate: str
    width: int
    num_experts: int
    k: int
    candidates: int
    numbers: tuple[int, ...]
    found: tuple[float, ...]
    """With so many numbers: share of the chosen experts."""
    mass: tuple[float, ...]
    """And of their coefficients."""


@dataclass(frozen=True)
class GateBench:
    """What ``mxd bench gates`` reports."""

    points: tuple[GatePoint, ...]
    found: tuple[FoundPoint, ...]
    projected: tuple[ProjectedPoint, ...]
    machine: Machine


@dataclass(frozen=True)
class GateBenchSizes:
    """What is to be measured: every width with every N and batch."""

    widths: Sequence[int]
    num_experts: Sequence[int]
    k: int
    batches: Sequence[int]
    wanted: float
    """Share that cells are to find."""
    rounds: int


@torch.inference_mode()
def bench_gates(
    sizes: GateBenchSizes, device: str, fitted: Sequence[tuple[FoundPoint, ProjectedPoint]] = ()
) -> GateBench:
    """Measure; ``fitted`` is what was found of fitted gates, and is reported beside."""
    points: list[GatePoint] = []
    found = list(fitted)
    for width in sizes.widths:
        for num_experts in sizes.num_experts:
            gates, x_TI, seen = _gates(width, num_experts, sizes)
            found.append(seen)
            moved = {name: gate.to(device) for name, gate in gates.items()}
            points += [_point(moved, x_TI[:batch].to(device), sizes, device) for batch in sizes.batches]
            del gates, moved
    return GateBench(
        tuple(points), tuple(one for one, _ in found), tuple(other for _, other in found), Machine.here(device)
    )


def found_of_run(
    run: Run, language_model: LanguageModel, text: TextConfig, tokens: int, wanted: float
) -> tuple[FoundPoint, ProjectedPoint]:
    """What both indexes find of a fitted run's flat gate, made on one half of a text and measured on the other."""
    gate, k = run.layer.gate, run.layer.config.k
    assert isinstance(gate, FlatGate)
    made_TI, measured_TI = inputs_of(run, text, tokens, 0, language_model).chunk(2)
    cells = cells_of(gate, made_TI, GateConfig(gate="cells"), k)
    in_cells = _found_point(run.name, cells, found_by_probes(cells, gate, measured_TI, k), k, wanted)
    return in_cells, _projected_point(run.name, gate, made_TI, measured_TI, k)[0]


def _projected_point(
    name: str, gate: FlatGate, made_TI: Tensor, measured_TI: Tensor, k: int
) -> tuple[ProjectedPoint, ProjectedGate]:
    """What is found with several numbers, and the gate with I / 4 of them."""
    axes, candidates = axes_of(gate, made_TI), min(CANDIDATES * k, gate.num_experts)
    numbers = tuple(max(1, gate.input_width // part) for part in PARTS_OF_WIDTH)
    made = [projected_of(gate, axes, count, candidates) for count in numbers]
    shares = [found_by(it, gate, measured_TI, k) for it in made]
    point = ProjectedPoint(
        gate=name,
        width=gate.input_width,
        num_experts=gate.num_experts,
        k=k,
        candidates=candidates,
        numbers=numbers,
        found=tuple(share.chosen for share in shares),
        mass=tuple(share.mass for share in shares),
    )
    return point, made[-2]


def _found_point(name: str, cells: CellsGate, found: Found, k: int, wanted: float) -> FoundPoint:
    probes = tuple(count for count in PROBES if count <= cells.sizes.number)
    places = torch.tensor(probes) - 1
    return FoundPoint(
        gate=name,
        width=cells.input_width,
        num_experts=cells.num_experts,
        k=k,
        cells=cells.sizes.number,
        probes=probes,
        found=tuple(found.chosen_G[places].tolist()),
        mass=tuple(found.mass_G[places].tolist()),
        wanted=wanted,
        needed=found.probes_for(wanted),
    )


def _gates(
    width: int, num_experts: int, sizes: GateBenchSizes
) -> tuple[dict[str, Gate], Tensor, tuple[FoundPoint, ProjectedPoint]]:
    """A gate of each kind, tokens, and what the indexes find. The large tables are one and the same: of a million
    experts there is no room for more."""
    generator = torch.Generator().manual_seed(0)
    flat, x_TI = clustered(width, num_experts, max(TOKENS, 2 * width, *sizes.batches), generator)
    made_TI, measured_TI = x_TI.chunk(2)
    cells = cells_of(flat, made_TI, GateConfig(gate="cells"), sizes.k)
    seen = found_by_probes(cells, flat, measured_TI, sizes.k)
    point = _found_point("made-up", cells, seen, sizes.k, sizes.wanted)
    few, projected = _projected_point("made-up", flat, made_TI, measured_TI, sizes.k)
    probed = max(point.needed, groups_that_hold(sizes.k, num_experts, cells.sizes.size))
    cells.sizes = cells.sizes._replace(chosen=probed)
    with torch.device("meta"):
        two_level = build_gate(GateConfig(gate="two-level"), width, num_experts, sizes.k)
    assert isinstance(two_level, TwoLevelGate)
    two_level.groups.to_empty(device="cpu")
    flat.weight = two_level.own.weight = projected.own.weight = cells.own.weight
    flat.bias = two_level.own.bias = projected.own.bias = cells.own.bias
    two_level.groups.weight.copy_(cells.key_GI)
    two_level.groups.bias.copy_(cells.bias_G)
    product_key = build_gate(GateConfig(gate="product-key"), width, num_experts, sizes.k)
    gates = {"flat": flat, "product-key": product_key, "two-level": two_level, "cells": cells, "projected": projected}
    return gates, x_TI, (point, few)


def clustered(width: int, num_experts: int, tokens: int, generator: torch.Generator) -> tuple[FlatGate, Tensor]:
    """A gate whose rows lie around about √N centres, in random order, and tokens near its rows."""
    with torch.device("meta"):
        gate = FlatGate(width, num_experts)
    gate.to_empty(device="cpu")
    centres_GI = F.normalize(torch.randn(math.isqrt(num_experts), width, generator=generator), dim=1)
    gate.weight.normal_(0, SPREAD / math.sqrt(width), generator=generator)
    gate.weight += centres_GI[torch.randint(len(centres_GI), (num_experts,), generator=generator)]
    gate.bias.zero_()
    near_T = torch.randint(num_experts, (tokens,), generator=generator)
    noise_TI = torch.randn(tokens, width, generator=generator) * SPREAD / math.sqrt(width)
    return gate, gate.weight[near_T] + noise_TI


def _point(gates: dict[str, Gate], x_BI: Tensor, sizes: GateBenchSizes, device: str) -> GatePoint:
    ways = {name: _choosing(gate, x_BI, sizes.k) for name, gate in gates.items()}
    clock = time.thread_time if device == "cpu" else time.perf_counter
    seconds = in_turn(ways, sizes.rounds, clock=clock)
    flat = gates["flat"]
    return GatePoint(
        width=flat.input_width,
        num_experts=flat.num_experts,
        k=sizes.k,
        batch=len(x_BI),
        ways=tuple(
            _way(_config(name, gate), gate, len(x_BI), seconds["flat"], seconds[name], extra_peak_bytes(way, device))
            for (name, gate), way in zip(gates.items(), ways.values(), strict=True)
        ),
    )


def _way(config: GateConfig, gate: Gate, batch: int, flat: list[float], taken: list[float], extra: float) -> Way:
    sizes = GateSizes(config, gate.num_experts, gate.input_width)
    return Way(
        gate=config.in_words(),
        microseconds_per_token=1e6 * statistics.median(taken) / batch,
        speedup=median_ratio(flat, taken),
        flops_per_token=sizes.flops,
        flops_share=sizes.flops / (2 * gate.input_width * gate.num_experts),
        weight_bytes=4 * sizes.parameters,
        extra_bytes=extra,
    )


def _config(name: str, gate: Gate) -> GateConfig:
    if isinstance(gate, CellsGate | TwoLevelGate):
        return GateConfig.model_validate(
            {"gate": name, "groups": gate.sizes.number, "chosen_groups": gate.sizes.chosen}
        )
    if isinstance(gate, ProjectedGate):
        return GateConfig(gate="projected", numbers=len(gate.projection_RI), candidates=gate.candidates)
    return GateConfig.model_validate({"gate": name})


def _choosing(gate: Gate, x_BI: Tensor, k: int) -> Callable[[], object]:
    return lambda: gate.choose(x_BI, k)
