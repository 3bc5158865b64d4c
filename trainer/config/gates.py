"""Gate settings, and the sizes and compute that follow from them.

    flat          scores every expert: N dot products
    product-key   expert (i, j) scores first_i + second_j: two codebooks of about √N entries (arXiv 1907.05242)
    two-level     scores groups of experts, then only the experts of the best groups

Shapes: N experts, I input width, K active experts, A and B codebook entries, G groups of S experts, C top groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from mxd.trainer.config.base import Config
from mxd.trainer.errors import UserError

GateForm = Literal["flat", "product-key", "two-level"]

MIN_TOP_GROUPS = 8
"""Smallest default of ``top_groups``."""
EXPERTS_PER_K = 4
"""By default, the top groups hold at least this many times K experts."""

GroupCount = Annotated[int, Field(gt=0, lt=2**28)]


class GateConfig(Config):
    """Kind of gate and its group sizes."""

    gate: GateForm = "flat"
    """How the K active experts are chosen. flat: score every expert. product-key: score two codebooks of about √N
    entries; each expert is a pair of entries. two-level: score groups, then the experts of the best groups. Default:
    flat. The others need less compute for tens of thousands of experts or more."""
    groups: GroupCount | None = None
    """Number of groups of a two-level gate. Default: about √N."""
    top_groups: GroupCount | None = None
    """Number of groups whose experts a two-level gate scores. Default: 8, or as many as hold 4 K experts. Raise it to
    miss fewer of the best experts."""

    def describe(self) -> str:
        """Name of the gate, with its group counts once they are resolved."""
        if self.groups is None:
            return self.gate
        return f"{self.gate}, {self.top_groups} of {self.groups}"


FLAT = GateConfig()


class Codebooks(NamedTuple):
    """Sizes of the two codebooks of a product-key gate. Expert n is the pair (n // second, n % second)."""

    first: int
    second: int


def codebooks(num_experts: int) -> Codebooks:
    """Smallest codebooks with a pair for each expert. Unused pairs belong to the last entry of ``first``."""
    second = math.isqrt(num_experts - 1) + 1
    return Codebooks(-(-num_experts // second), second)


class Groups(NamedTuple):
    """Group sizes of a two-level gate. Expert n is in group n // size; the last group may be smaller."""

    number: int
    size: int
    top: int


def gate_groups(config: GateConfig, num_experts: int) -> Groups:
    """Group sizes of a resolved two-level config."""
    assert config.groups is not None and config.top_groups is not None
    size = -(-num_experts // config.groups)
    return Groups(-(-num_experts // size), size, config.top_groups)


def groups_to_hold(experts: int, num_experts: int, size: int) -> int:
    """Number of groups that hold at least ``experts`` experts, even if the smaller last group is among them."""
    missing = -num_experts % size
    return min(-(-(experts + missing) // size), -(-num_experts // size))


def resolve_gate(config: GateConfig, num_experts: int, k: int) -> GateConfig:
    """Fill in the group counts of a two-level gate.

    Raises:
        UserError: the group counts do not fit N or K, or the gate has no groups.
    """
    if config.gate != "two-level":
        if config.groups is not None or config.top_groups is not None:
            raise UserError(f"A {config.gate} gate has no groups. Omit --groups and --top-groups.")
        return config
    requested = config.groups or math.isqrt(num_experts - 1) + 1
    if requested > num_experts:
        raise UserError(f"groups={requested} exceeds the number of experts, {num_experts}. Lower --groups.")
    size = -(-num_experts // requested)
    number = -(-num_experts // size)
    required = groups_to_hold(k, num_experts, size)
    default = max(MIN_TOP_GROUPS, groups_to_hold(min(EXPERTS_PER_K * k, num_experts), num_experts, size))
    top = config.top_groups or min(default, number)
    if top > number:
        raise UserError(f"top_groups={top} exceeds the number of groups, {number}. Lower --top-groups.")
    if top < required:
        raise UserError(f"{top} groups of {size} experts may hold fewer than k={k}. Raise --top-groups to {required}.")
    return config.model_copy(update={"groups": number, "top_groups": top})


class GateProduct(NamedTuple):
    """Matrix product [rows, I] x [I, columns] that a gate computes."""

    rows: int
    columns: int
    flops_per_token: int


@dataclass(frozen=True)
class GateSizes:
    """Parameters and compute of a gate."""

    config: GateConfig
    """Resolved gate settings."""
    num_experts: int
    input_width: int

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return self._rows * (self.input_width + 1)

    @property
    def _rows(self) -> int:
        if self.config.gate == "product-key":
            return sum(codebooks(self.num_experts))
        if self.config.gate == "two-level":
            return self.num_experts + gate_groups(self.config, self.num_experts).number
        return self.num_experts

    @property
    def scores(self) -> int:
        """Dot products per token."""
        if self.config.gate == "product-key":
            return sum(codebooks(self.num_experts))
        if self.config.gate == "two-level":
            groups = gate_groups(self.config, self.num_experts)
            return groups.number + min(groups.top * groups.size, self.num_experts)
        return self.num_experts

    @property
    def flops(self) -> int:
        """FLOPs per token; a multiply-add counts as two."""
        return 2 * self.input_width * self.scores

    @property
    def rows_per_expert(self) -> int:
        """Weight rows that are summed into one expert's score, and that receive its gradient."""
        return 1 if self.config.gate == "flat" else 2

    @property
    def gathers(self) -> int:
        """How many times a token's input is gathered outside matrix products."""
        return gate_groups(self.config, self.num_experts).top if self.config.gate == "two-level" else 0

    def products(self, batch: int) -> list[GateProduct]:
        """Matrix products of a step of ``batch`` tokens."""
        width = 2 * self.input_width
        if self.config.gate == "product-key":
            return [GateProduct(batch, entries, width * entries) for entries in codebooks(self.num_experts)]
        if self.config.gate == "flat":
            return [GateProduct(batch, self.num_experts, self.flops)]
        groups = gate_groups(self.config, self.num_experts)
        tokens_per_group = max(1, batch * groups.top // groups.number)
        return [
            GateProduct(batch, groups.number, width * groups.number),
            GateProduct(tokens_per_group, groups.size, self.flops - width * groups.number),
        ]
