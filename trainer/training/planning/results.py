"""Requirements of training, as reported by ``mxd train --plan``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerPlan:
    """Sizes of one run's layer."""

    run: str
    method: str
    layer: int
    num_experts: int
    k: int
    parameters: int
    step_flops_per_token: int


@dataclass(frozen=True)
class TrainPlan:
    """Report of ``mxd train --plan``."""

    device: str
    processes: int
    language_model_dtype: str
    language_model_parameters: int
    language_model_used_parameters: int
    """Weights in the blocks that are run, without norms and biases."""
    layers: list[LayerPlan]
    memory: dict[str, int]
    """Bytes of one process by kind."""
    memory_total: int
    memory_free: int
    """Free bytes on the device."""
    disk: int
    """Bytes of two checkpoints, which exist while a new one is written."""
    tokens: int
    flops_per_token: int
    """FLOPs per token of the model and all runs."""
    tokens_per_second: float
    """Expected throughput of all processes, each with a device like this one."""
    hours: float
    share_of_products: float
    """Expected share of the measured FLOP/s of matrix products."""
    refusal: str | None
    """Error message with a configuration that would fit; None if this one does."""
