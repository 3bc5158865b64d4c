"""Internal precision of float32 matrix products during training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from mxd.trainer.config.training import MatmulPrecision
from mxd.trainer.training.planning.dtypes import has_bfloat16_units


@contextmanager
def matmul_precision(precision: MatmulPrecision) -> Iterator[None]:
    """Set ``torch.set_float32_matmul_precision`` inside the context, and restore it afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def bfloat16_products(precision: MatmulPrecision, device: torch.device) -> AbstractContextManager[object]:
    """Autocast matrix products to bfloat16 for the precision ``medium`` on a CPU with native bf16 support.

    There, PyTorch itself uses bfloat16 for float32 products only with AMX units.
    """
    if precision == "medium" and device.type == "cpu" and has_bfloat16_units():
        return torch.autocast("cpu", torch.bfloat16)
    return nullcontext()
