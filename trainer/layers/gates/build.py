"""From a config to the gate that it names."""

from __future__ import annotations

from trainer.gate_config import GateConfig, groups_of, settled
from trainer.layers.gates.base import Gate
from trainer.layers.gates.cells import CellsGate
from trainer.layers.gates.flat import FlatGate
from trainer.layers.gates.product_key import ProductKeyGate
from trainer.layers.gates.projected import ProjectedGate
from trainer.layers.gates.two_level import TwoLevelGate


def build_gate(config: GateConfig, input_width: int, num_experts: int, k: int) -> Gate:
    """A new gate with its starting values.

    Raises:
        UserError: its numbers do not go together.
    """
    config = settled(config, num_experts, k)
    if config.gate == "flat":
        return FlatGate(input_width, num_experts)
    if config.gate == "product-key":
        return ProductKeyGate(input_width, num_experts)
    if config.gate == "two-level":
        return TwoLevelGate(input_width, num_experts, groups_of(config, num_experts))
    if config.gate == "projected":
        assert config.numbers is not None and config.candidates is not None
        return ProjectedGate(input_width, num_experts, config.numbers, config.candidates)
    return CellsGate(input_width, num_experts, groups_of(config, num_experts))
