"""How the K of N experts are found, and what that takes; all of it follows from sizes.

    flat          every expert is scored: N dot products
    product-key   expert (i, j) scores first_i + second_j: two codebooks of about √N (arXiv 1907.05242)
    two-level     groups are scored, then the experts of the best groups alone
    cells         a fitted flat gate, of which the cells of experts that promise most are scored: an approximation
    projected     a fitted flat gate, of which the experts are scored that few numbers of the input make likely: another

Shapes: N experts, I input width, K active, A and B entries of two codebooks, G groups of S experts, C chosen groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from trainer.errors import UserError

FittedGate = Literal["flat", "product-key", "two-level"]
GateForm = Literal[FittedGate, "cells", "projected"]
FITTED: frozenset[GateForm] = frozenset({"flat", "product-key", "two-level"})
GROUPED: frozenset[GateForm] = frozenset({"two-level", "cells"})

CHOSEN_GROUPS = 8
"""By default, at least."""
SPARE = 4
"""By default the chosen groups hold at least so many times K experts."""

GroupCount = Annotated[int, Field(gt=0, lt=2**28)]


class FittedGateConfig(BaseModel):
    """Which gate a layer is fitted with."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    gate: FittedGate = "flat"
    """flat: every expert is scored. product-key: an expert scores the sum of an entry of each of two codebooks of about
    √N. two-level: groups are scored, then the experts of the best of them."""
    groups: GroupCount | None = None
    """Groups of a two-level gate; by default about √N."""
    chosen_groups: GroupCount | None = None
    """Of which the experts are scored; by default 8, or as many as hold 4 K experts."""


class GateConfig(FittedGateConfig):
    """Which gate a layer has."""

    gate: GateForm = "flat"  # type: ignore[assignment]
    """The same, or an index over a flat gate that was fitted. cells: the experts of the cells that promise most are
    scored. projected: those that few numbers of the input make likely."""
    numbers: GroupCount | None = None
    """Numbers of the input that a projected gate looks at."""
    candidates: GroupCount | None = None
    """Experts that it then scores."""

    def in_words(self) -> str:
        """In a few words, with the groups where they are settled."""
        if self.gate == "projected":
            return f"projected, {self.numbers} numbers and {self.candidates} candidates"
        if self.groups is None:
            return self.gate
        return f"{self.gate}, {self.chosen_groups} of {self.groups}"


FLAT = GateConfig()


class Codebooks(NamedTuple):
    """Entries of the two codebooks of a product-key gate. Expert n is the pair (n // second, n % second)."""

    first: int
    second: int


def codebooks(num_experts: int) -> Codebooks:
    """The smallest that have a pair for each expert; pairs that are left over, of the last entry of ``first``, are
    never chosen."""
    second = math.isqrt(num_experts - 1) + 1
    return Codebooks(-(-num_experts // second), second)


class Groups(NamedTuple):
    """Groups of a two-level gate, or cells. Expert, or place, n is in group n // size; the last may be smaller."""

    number: int
    size: int
    chosen: int


def groups_of(config: GateConfig, num_experts: int) -> Groups:
    """Of a settled config."""
    assert config.groups is not None and config.chosen_groups is not None
    size = -(-num_experts // config.groups)
    return Groups(-(-num_experts // size), size, config.chosen_groups)


def groups_that_hold(experts: int, num_experts: int, size: int) -> int:
    """How many groups hold so many experts for certain, also where the last, which may be smaller, is among them."""
    missing = -num_experts % size
    return min(-(-(experts + missing) // size), -(-num_experts // size))


def settled(config: GateConfig, num_experts: int, k: int) -> GateConfig:
    """With every number that was left open.

    Raises:
        UserError: the numbers do not go together.
    """
    if config.gate not in GROUPED:
        if config.groups is not None or config.chosen_groups is not None:
            raise UserError(f"A {config.gate} gate has no groups; leave --groups and --chosen-groups out.")
        return _checked(config, num_experts, k)
    wanted = config.groups or math.isqrt(num_experts - 1) + 1
    if wanted > num_experts:
        raise UserError(f"{num_experts} experts cannot be put into {wanted} groups; ask for fewer.")
    size = -(-num_experts // wanted)
    number = -(-num_experts // size)
    least = groups_that_hold(k, num_experts, size)
    default = max(CHOSEN_GROUPS, groups_that_hold(min(SPARE * k, num_experts), num_experts, size))
    chosen = config.chosen_groups or min(default, number)
    if chosen > number:
        raise UserError(f"{num_experts} experts make {number} groups of {size}; lower --chosen-groups to {number}.")
    if chosen < least:
        raise UserError(f"{chosen} groups of {size} may hold fewer than K = {k}; raise --chosen-groups to {least}.")
    return config.model_copy(update={"groups": number, "chosen_groups": chosen})


def _checked(config: GateConfig, num_experts: int, k: int) -> GateConfig:
    numbers, candidates = config.numbers, config.candidates
    if config.gate != "projected":
        if numbers is not None or candidates is not None:
            raise UserError(f"A {config.gate} gate has neither numbers nor candidates to choose; leave them out.")
    elif numbers is None or candidates is None or not k <= candidates <= num_experts:
        raise UserError("A projected gate needs its numbers, and from K to N candidates; make it with mxd approximate.")
    return config


class GateProduct(NamedTuple):
    """A matrix product [rows, I] x [I, columns], some times over."""

    rows: int
    columns: int
    flops_per_token: int


@dataclass(frozen=True)
class GateSizes:
    """What a gate takes."""

    config: GateConfig
    """Settled."""
    num_experts: int
    input_width: int

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return self._rows * (self.input_width + 1)

    @property
    def _rows(self) -> int:
        if self.config.gate == "product-key":
            return sum(codebooks(self.num_experts))
        if self.config.gate == "two-level":
            return self.num_experts + groups_of(self.config, self.num_experts).number
        return self.num_experts

    @property
    def scores(self) -> int:
        """Dot products that are made for a token."""
        if self.config.gate == "product-key":
            return sum(codebooks(self.num_experts))
        if self.config.gate in GROUPED:
            groups = groups_of(self.config, self.num_experts)
            return groups.number + min(groups.chosen * groups.size, self.num_experts)
        return self.num_experts

    @property
    def flops(self) -> int:
        """Of these dot products; two for a multiplication with its addition."""
        if self.config.gate == "projected":
            return sum(it.flops_per_token for it in self.products(1))
        return 2 * self.input_width * self.scores

    @property
    def rows_per_expert(self) -> int:
        """Rows of weights that a chosen expert's score is made of, and that get a gradient."""
        return 2 if self.config.gate in ("product-key", "two-level") else 1

    @property
    def read_again(self) -> int:
        """How often a token's input is gathered, beside products."""
        return groups_of(self.config, self.num_experts).chosen if self.config.gate in GROUPED else 0

    def products(self, batch: int) -> list[GateProduct]:
        """The shapes in which a step of ``batch`` tokens makes them."""
        width = 2 * self.input_width
        if self.config.gate == "product-key":
            return [GateProduct(batch, entries, width * entries) for entries in codebooks(self.num_experts)]
        if self.config.gate == "projected":
            numbers, candidates = self.config.numbers, self.config.candidates
            assert numbers is not None and candidates is not None
            return [
                GateProduct(batch, numbers, width * numbers),
                GateProduct(batch, self.num_experts, 2 * numbers * self.num_experts),
                GateProduct(1, candidates, width * candidates),
            ]
        if self.config.gate not in GROUPED:
            return [GateProduct(batch, self.num_experts, self.flops)]
        groups = groups_of(self.config, self.num_experts)
        each = max(1, batch * groups.chosen // groups.number)
        return [
            GateProduct(batch, groups.number, width * groups.number),
            GateProduct(each, groups.size, self.flops - width * groups.number),
        ]
