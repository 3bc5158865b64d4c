"""An approximate index over a fitted flat gate: few numbers choose candidates, which are then scored exactly.

    z = x P + p                                 R numbers for a token
    candidates: the largest of z k_n            R numbers for an expert
    among these the K largest of x g_n + b_n    as the flat gate has them

P and the keys k_n are those with which z k_n is closest to the score, in mean square over inputs: with the inputs'
second moments taken out of x and put into the rows, the main directions of the rows. Nothing is fitted. Inputs of an
MLP vary in few directions, so few numbers go far, also where the rows have no order that cells could use.

Shapes: T tokens, I input width, N experts, K active, R numbers, C candidates, E some experts.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.errors import UserError
from trainer.layers.gates.base import Gate, Some
from trainer.layers.gates.blocks import scores_of
from trainer.layers.gates.flat import FlatGate
from trainer.layers.gates.sums import Part, coefficients
from trainer.layers.kernels import ops_for

SMALLEST = 1e-9
"""Second moments below this share of the largest are taken for it, so that nothing is divided by zero."""
SCORES_AT_A_TIME = 1 << 24


class ProjectedGate(Gate):
    """A flat gate with a key of few numbers for each expert."""

    projection_RI: Tensor
    offset_R: Tensor
    key_NR: Tensor

    def __init__(self, input_width: int, num_experts: int, numbers: int, candidates: int) -> None:
        super().__init__(input_width, num_experts)
        self.candidates = candidates
        self.own = nn.Linear(input_width, num_experts)
        self.register_buffer("projection_RI", torch.zeros(numbers, input_width))
        self.register_buffer("offset_R", torch.zeros(numbers))
        self.register_buffer("key_NR", torch.zeros(num_experts, numbers))

    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            ids_TC = self.candidate_ids(x_TI, max(k, self.candidates))
            scores_TC = ops_for(x_TI).row_dots(x_TI, self.own.weight, ids_TC) + self.own.bias[ids_TC]
            scores_TK, places_TK = scores_TC.topk(k, dim=1)
            ids_TK = ids_TC.gather(1, places_TK)
        return coefficients(x_TI, scores_TK, Part(self.own.weight, self.own.bias, ids_TK)), ids_TK

    def candidate_ids(self, x_TI: Tensor, count: int) -> Tensor:
        """The most promising experts of each token, best first, [T, count]."""
        z_TR = scores_of(x_TI, self.projection_RI, self.offset_R)
        none_N = z_TR.new_zeros(()).expand(self.num_experts)
        parts = z_TR.split(max(1, SCORES_AT_A_TIME // self.num_experts))
        return torch.cat([scores_of(z_PR, self.key_NR, none_N).topk(count, dim=1).indices for z_PR in parts])

    def rows(self, some: Some) -> Tensor:
        return self.own.weight.detach()[some]

    def start(self, directions_NI: Tensor, mean_I: Tensor) -> Tensor:  # noqa: ARG002
        raise UserError(
            "An index is made of a gate that was fitted; fit with another --gate, then use mxd approximate."
        )


class Axes(NamedTuple):
    """All numbers that there can be, the most telling first."""

    projection_RI: Tensor
    offset_R: Tensor
    key_NR: Tensor


@torch.no_grad()
def axes_of(gate: FlatGate, x_TI: Tensor) -> Axes:
    """Of a fitted gate on some inputs, more than I."""
    with_one = F.pad(x_TI.double(), (0, 1), value=1.0)
    values, vectors = torch.linalg.eigh(with_one.T @ with_one / len(x_TI))
    values = values.clamp_min(SMALLEST * values[-1])
    root = vectors * values.sqrt()
    moved_NR = torch.addmm(gate.bias.unsqueeze(1) * root[-1].to(gate.bias), gate.weight, root[:-1].to(gate.weight))
    turned = torch.linalg.eigh((moved_NR.T @ moved_NR).double()).eigenvectors.flip(1)
    projection = (vectors / values.sqrt()) @ turned
    return Axes(
        projection[:-1].T.to(gate.weight).contiguous(),
        projection[-1].to(gate.weight).contiguous(),
        moved_NR @ turned.to(gate.weight),
    )


@torch.no_grad()
def projected_of(gate: FlatGate, axes: Axes, numbers: int, candidates: int) -> ProjectedGate:
    """With so many numbers; the gate's own weights are shared."""
    with torch.device("meta"):  # of a million experts the starting values alone take long
        found = ProjectedGate(gate.input_width, gate.num_experts, numbers, candidates)
    found.own.weight, found.own.bias = gate.weight, gate.bias
    found.projection_RI = axes.projection_RI[:numbers].contiguous()
    found.offset_R = axes.offset_R[:numbers].contiguous()
    found.key_NR = axes.key_NR[:, :numbers].contiguous()
    return found


class FoundBy(NamedTuple):
    """What is found of a flat gate's choice, shares over all tokens together."""

    chosen: float
    """Of the chosen experts."""
    mass: float
    """Of their coefficients."""


@torch.no_grad()
def found_by(gate: ProjectedGate, flat: FlatGate, x_TI: Tensor, k: int) -> FoundBy:
    """How much of what the flat gate chooses is among the candidates: then it is chosen."""
    coefficients_TK, ids_TK = flat.choose(x_TI, k)
    hits = []
    for wanted_PK, x_PI in zip(ids_TK.split(512), x_TI.split(512), strict=True):
        found_TN = torch.zeros(len(x_PI), gate.num_experts, dtype=torch.bool, device=x_TI.device)
        found_TN.scatter_(1, gate.candidate_ids(x_PI, gate.candidates), True)
        hits.append(found_TN.gather(1, wanted_PK))
    hit_TK, active_TK = torch.cat(hits), coefficients_TK > 0
    chosen = (hit_TK & active_TK).sum() / active_TK.sum().clamp_min(1)
    mass = (coefficients_TK * hit_TK).sum() / coefficients_TK.sum().clamp_min(1e-30)
    return FoundBy(chosen.item(), mass.item())


def numbers_for(gate: FlatGate, axes: Axes, x_TI: Tensor, k: int, candidates: int, wanted: float) -> int:
    """The fewest numbers, in steps of a 32nd of the width, with which such a share of the choice is found."""
    step, most = max(1, gate.input_width // 32), len(axes.projection_RI)
    low, high = 1, -(-most // step)
    while low < high:  # more numbers find more but for chance, so halving finds the fewest
        middle = (low + high) // 2
        made = projected_of(gate, axes, min(middle * step, most), candidates)
        low, high = (low, middle) if found_by(made, gate, x_TI, k).chosen >= wanted else (middle + 1, high)
    return min(low * step, most)
