"""Internal precision of float32 matrix products during training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from mxd.trainer.config.training import MatmulPrecision
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


def product_dtype(precision: MatmulPrecision, device: torch.device, width: int) -> torch.dtype:
    """Dtype to which a layer's matrix products round their inputs: bfloat16 or float32.

    PyTorch itself uses bfloat16 for float32 products only on CPUs with AMX units.

    Args:
        precision: setting of the run.
        device: device of the layer.
        width: input width of the layer.
    """
    is_chosen = precision == "medium" or (precision == "auto" and width >= MIN_BFLOAT16_PRODUCT_WIDTH)
    return torch.bfloat16 if is_chosen and device.type == "cpu" and has_bfloat16_units() else torch.float32


def products_in(dtype: torch.dtype) -> AbstractContextManager[object]:
    """Context in which matrix products on a CPU round their inputs to a dtype."""
    return nullcontext() if dtype == torch.float32 else torch.autocast("cpu", dtype)
