"""Gates without a top-k: every expert whose score is positive is active, so K is N.

    a = relu(x G + b_gate)

Shapes: T tokens, I input width, O output width, N experts, K active.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.gate_config import GateForm
from trainer.layers.sparse import Routing, SparseLayer


class EveryExpert(SparseLayer):
    """A gate that lets every positive score through, beside a decoder that a subclass brings."""

    expert_tables: ClassVar[tuple[str, ...]] = ()
    gates: ClassVar[frozenset[GateForm]] = frozenset({"flat"})

    def coefficients(self, x_TI: Tensor) -> Tensor:
        """Of every expert, [T, N]; 0 where it is not active."""
        return F.relu(self.gate(x_TI))

    def route(self, x_TI: Tensor) -> Routing:
        """Every expert in order of its id, those that are not active with 0."""
        coefficients_TN = self.coefficients(x_TI)
        ids_N = torch.arange(self.config.num_experts, device=x_TI.device)
        return Routing(coefficients_TN, ids_N.expand_as(coefficients_TN))

    def mixing(self, routing: Routing) -> Tensor:
        """a times the table with a row an expert."""
        # Gathering rows would take N times the memory of one matrix product.
        if routing.indices_TK.shape[1] != self.config.num_experts:
            return self.mix(routing, self.table)
        return self.dense_coefficients(routing) @ self.table

    def dense_coefficients(self, routing: Routing) -> Tensor:
        """[T, N], whatever the order of the columns."""
        shape = routing.coefficients_TK.shape[0], self.config.num_experts
        return routing.coefficients_TK.new_zeros(shape).scatter_add(1, routing.indices_TK, routing.coefficients_TK)
