"""When the experts of a layer fire on a text, and what they write.

Shapes: T tokens, L tokens per sequence, S sequences, K active experts, N experts, J experts of the other layer,
E measured experts, I input width, O output width.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.utils.bootstrap import Floats


class Firing:
    """Gate activations and mean outputs of all experts of a layer over a text."""

    def __init__(self, layer: SparseLayer) -> None:
        self._layer = layer
        self._parts: list[Routing] = []
        self._output_NO = torch.zeros(layer.config.num_experts, layer.config.output_width)

    @torch.no_grad()
    def add(self, x_TI: Tensor) -> None:
        """Route a batch of tokens. The outputs of an expert are summed over its active tokens."""
        routing = self._layer.route(x_TI)
        dense_TM = self._layer.dense_output(x_TI)
        for column in range(routing.indices_TK.shape[1]):
            single = Routing(routing.coefficients_TK[:, column, None], routing.indices_TK[:, column, None])
            self._output_NO.index_add_(
                0, single.indices_TK[:, 0].cpu(), self._layer.contribution(dense_TM, single).cpu()
            )
        self._parts.append(Routing(*(part.cpu() for part in routing)))

    @property
    def num_experts(self) -> int:
        """Number of experts N."""
        return len(self._output_NO)

    @property
    def routing(self) -> Routing:
        """Routing of all tokens."""
        return Routing(*(torch.cat(parts) for parts in zip(*self._parts, strict=True)))

    @property
    def active_N(self) -> Tensor:
        """Number of active tokens of each expert."""
        routing = self.routing
        return torch.bincount(routing.indices_TK[routing.coefficients_TK > 0], minlength=self.num_experts)

    @property
    def direction_NO(self) -> Tensor:
        """Mean output of each expert, with norm 1."""
        return torch.nn.functional.normalize(self._output_NO, dim=1)

    @property
    def norm_N(self) -> Tensor:
        """Norm of each expert's gate activations over the text; tiny instead of 0 for those that never fire."""
        routing = self.routing
        squares_N = torch.zeros(self.num_experts)
        squares_N.index_add_(0, routing.indices_TK.reshape(-1), routing.coefficients_TK.reshape(-1).square().float())
        return squares_N.sqrt().clamp_min(1e-12)

    def dense(self, length: int) -> Iterator[Tensor]:
        """Yield the gate activations of all experts, [L, N], for each sequence of ``length`` tokens."""
        for coefficients_LK, indices_LK in zip(*(part.split(length) for part in self.routing), strict=True):
            dense_LN = torch.zeros(len(indices_LK), self.num_experts)
            yield dense_LN.scatter_add_(1, indices_LK, coefficients_LK.float())


def sums_per_sequence(
    own: Firing, other: Firing, experts_E: Tensor, match_E: Tensor, length: int
) -> tuple[Floats, Floats, Floats]:
    """Sums over the tokens of each sequence, [S, E]: products of an expert's gate activations and its match's, squares
    of the expert's, and squares of the match's."""
    sums = []
    for own_LN, other_LJ in zip(own.dense(length), other.dense(length), strict=True):
        own_LE, other_LE = own_LN[:, experts_E], other_LJ[:, match_E]
        sums.append(torch.stack([(own_LE * other_LE).sum(0), own_LE.square().sum(0), other_LE.square().sum(0)]))
    products_SE, own_SE, other_SE = torch.stack(sums, dim=1).double().numpy()
    return products_SE, own_SE, other_SE
