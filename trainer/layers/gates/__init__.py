"""Gates: each returns the K largest of N expert scores, exactly or approximately."""

from __future__ import annotations

from mxd.trainer.config.gates import GateConfig, gate_groups, resolve_gate
from mxd.trainer.layers.gates.base import Gate
from mxd.trainer.layers.gates.flat import FlatGate
from mxd.trainer.layers.gates.product_key import ProductKeyGate
from mxd.trainer.layers.gates.two_level import TwoLevelGate


def build_gate(config: GateConfig, input_width: int, num_experts: int, k: int) -> Gate:
    """Build a gate with random weights.

    Raises:
        UserError: the group counts do not fit N or K.
    """
    config = resolve_gate(config, num_experts, k)
    if config.gate == "flat":
        return FlatGate(input_width, num_experts)
    if config.gate == "product-key":
        return ProductKeyGate(input_width, num_experts)
    return TwoLevelGate(input_width, num_experts, gate_groups(config, num_experts))


__all__ = ["FlatGate", "Gate", "build_gate"]
