"""Internal precision of float32 matrix products during training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from mxd.trainer.config.training import MatmulPrecision, TrainConfig
from mxd.trainer.training.planning.dtypes import has_bfloat16_units

MIN_BFLOAT16_PRODUCT_WIDTH = 512
"""Input width from which ``auto`` uses bfloat16 products. In narrower layers other work takes most of a step."""


@contextmanager
def matmul_precision(precision: MatmulPrecision) -> Iterator[None]:
    """Set ``torch.set_float32_matmul_precision`` inside the context, and restore it afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision == "auto" else precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def is_in_tf32(config: TrainConfig) -> bool:
    """True if a run's float32 products are in TF32 on GPUs."""
    return config.optimizer.matmul_precision == "high"


def resolved_precision(precision: MatmulPrecision, device: torch.device, width: int) -> MatmulPrecision:
    """``auto`` as it is on a device, for a layer of this input width. The run stores it, so that every resumption of
    the run has the precision of its first step, on any machine."""
    if precision != "auto":
        return precision
    return "medium" if width >= MIN_BFLOAT16_PRODUCT_WIDTH and has_bfloat16_units(device) else "highest"


def product_dtype(precision: MatmulPrecision, device: torch.device, width: int) -> torch.dtype:
    """Dtype to which a layer's matrix products round their inputs: bfloat16 or float32. Sums are in float32.

    Args:
        precision: setting of the run.
        device: device of the layer.
        width: input width of the layer.
    """
    return torch.bfloat16 if resolved_precision(precision, device, width) == "medium" else torch.float32


def products_in(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """Context in which matrix products on a device round their inputs to a dtype."""
    # Without the cache of rounded weights: each is used once per step.
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype, cache_enabled=False)
