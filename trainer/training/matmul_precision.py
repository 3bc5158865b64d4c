"""Internal precision of float32 matrix products during training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mxd.trainer.config.training import MatmulPrecision


@contextmanager
def matmul_precision(precision: MatmulPrecision) -> Iterator[None]:
    """Set ``torch.set_float32_matmul_precision`` inside the context, and restore it afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
