"""An approximate index over a fitted flat gate: an inverted file whose cells are experts that score alike.

Cells hold equally many experts. A cell's key is the mean of its experts' rows and biases, so it promises the mean of
their scores; the experts of the C cells that promise most are scored, exactly, and the K largest of these taken. What
is missed are experts that stand out of a cell that promises little. Nothing is fitted: rows are the flat gate's own.

"Alike" is measured on the text: the squared difference of two experts' scores, on average over inputs, is a squared
distance between their rows (with biases), once these are multiplied with the root of the inputs' second moments.

Shapes: T tokens, I input width, N experts, K active, G cells of S, C probed cells, E some experts.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.errors import UserError
from trainer.gate_config import GateConfig, Groups, groups_of, settled
from trainer.layers.gates.base import Gate, Some
from trainer.layers.gates.blocks import largest_of_all, largest_of_blocks, scores_of
from trainer.layers.gates.flat import FlatGate
from trainer.layers.gates.grouping import in_groups
from trainer.layers.gates.sums import Part, coefficients

ROWS_AT_A_TIME = 65_536


class CellsGate(Gate):
    """A flat gate's rows, those of a cell one after the other, and a key for each cell."""

    expert_N: Tensor
    """Which expert is at each place."""
    key_GI: Tensor
    bias_G: Tensor

    def __init__(self, input_width: int, num_experts: int, cells: Groups) -> None:
        super().__init__(input_width, num_experts)
        self.sizes = cells
        self.own = nn.Linear(input_width, num_experts)
        self.register_buffer("expert_N", torch.arange(num_experts))
        self.register_buffer("key_GI", torch.zeros(cells.number, input_width))
        self.register_buffer("bias_G", torch.zeros(cells.number))

    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        own, size = self.own, self.sizes.size
        cells_TC = self.ranked(x_TI, self.sizes.chosen)
        values_TCK, places_TCK = largest_of_blocks(x_TI, own.weight, own.bias, cells_TC, size, k)
        scores_TK, places_TK = largest_of_all(values_TCK, places_TCK, k)
        return coefficients(x_TI, scores_TK, Part(own.weight, own.bias, places_TK)), self.expert_N[places_TK]

    def ranked(self, x_TI: Tensor, count: int) -> Tensor:
        """The cells that promise most on each token, best first, [T, count]."""
        return scores_of(x_TI, self.key_GI, self.bias_G).topk(count, dim=1).indices

    def rows(self, some: Some) -> Tensor:
        return self.own.weight.detach()[self.expert_N.argsort()[some]]

    def start(self, directions_NI: Tensor, mean_I: Tensor) -> Tensor:  # noqa: ARG002
        raise UserError(
            "An index is made of a gate that was fitted; fit with another --gate, then use mxd approximate."
        )

    def check(self) -> None:
        if not torch.equal(self.expert_N.sort().values, torch.arange(self.num_experts)):
            raise UserError("The weights name experts twice; restore them from a copy or make the cells again.")


@torch.no_grad()
def cells_of(gate: FlatGate, x_TI: Tensor, config: GateConfig, k: int) -> CellsGate:
    """The cells of a gate, alike on some inputs.

    Args:
        gate: fitted.
        x_TI: inputs; more than I.
        config: how many cells there are to be.
        k: K.
    """
    sizes = groups_of(settled(config, gate.num_experts, k), gate.num_experts)
    with torch.device("meta"):  # of a million experts the starting values alone take long
        found = CellsGate(gate.input_width, gate.num_experts, sizes)
    found.to_empty(device=gate.weight.device)
    order_N = in_groups(_embedded(gate, x_TI), sizes.size)
    found.expert_N.copy_(order_N)
    for first in range(0, gate.num_experts, ROWS_AT_A_TIME):
        places = slice(first, first + ROWS_AT_A_TIME)
        found.own.weight[places] = gate.weight[order_N[places]]
    found.own.bias.copy_(gate.bias[order_N])
    found.key_GI.copy_(torch.stack([part.mean(dim=0) for part in found.own.weight.split(sizes.size)]))
    found.bias_G.copy_(torch.stack([part.mean() for part in found.own.bias.split(sizes.size)]))
    return found


def _embedded(gate: FlatGate, x_TI: Tensor) -> Tensor:
    """Rows whose squared distances are the mean squared differences of scores, [N, I + 1]."""
    with_one = F.pad(x_TI.double(), (0, 1), value=1.0)
    values, vectors = torch.linalg.eigh(with_one.T @ with_one / len(x_TI))
    root = (vectors * values.clamp_min(0).sqrt()).to(gate.weight)
    return torch.addmm(gate.bias.unsqueeze(1) * root[-1], gate.weight, root[:-1])


class Found(NamedTuple):
    """What is found of a flat gate's choice with 1, 2, … G probed cells, shares over all tokens together."""

    chosen_G: Tensor
    """Of the chosen experts."""
    mass_G: Tensor
    """Of their coefficients."""

    def probes_for(self, wanted: float) -> int:
        """The fewest probed cells with which such a share of the chosen experts is found."""
        return int((self.chosen_G < wanted - 1e-9).sum().clamp_max(len(self.chosen_G) - 1)) + 1


@torch.no_grad()
def found_by_probes(cells: CellsGate, gate: FlatGate, x_TI: Tensor, k: int) -> Found:
    """How much is found of what a flat gate chooses.

    An expert that it chooses is found where its cell is probed: no other can push it out.
    """
    coefficients_TK, ids_TK = gate.choose(x_TI, k)
    cell_TK = cells.expert_N.argsort()[ids_TK] // cells.sizes.size
    rank_TG = cells.ranked(x_TI, cells.sizes.number).argsort(dim=1)
    ranks_P = rank_TG.gather(1, cell_TK).reshape(-1)
    masses_P = coefficients_TK.reshape(-1).double()

    def share(weights_P: Tensor) -> Tensor:
        sums_G = torch.bincount(ranks_P, weights_P, minlength=cells.sizes.number).cumsum(0)
        return sums_G / sums_G[-1].clamp_min(1e-300)

    return Found(share((masses_P > 0).double()), share(masses_P))
