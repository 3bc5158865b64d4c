"""Time of a training step (forward, backward, AdamW) of an MxD and its share of the roofline.

The floor is the larger of FLOPs over the measured product rate and bytes over the measured bandwidth.

Shapes: B tokens per step, I input width, O output width, N experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from benchmarks.gpu.clock import median_seconds
from benchmarks.gpu.sections import Point, Setting
from benchmarks.gpu.shapes import PaperShape, shapes
from benchmarks.trainer.timing import Machine
from mxd.trainer.layers.metrics import normalized_mse
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.training.matmul_precision import matmul_precision
from mxd.trainer.training.planning.cost_model import LayerSizes

Precision = Literal["float32", "tf32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bfloat16")
"""Precision of matrix products: float32, the units' reduced mode of float32, and ``torch.autocast``."""
CPU_PRECISIONS: tuple[Precision, ...] = ("float32", "tf32")
"""Precisions of the operations in plain PyTorch."""
PRODUCT_SIZE, TINY_PRODUCT_SIZE = 8192, 64
COPY_NUMBERS, TINY_COPY_NUMBERS = 1 << 30, 1 << 12


def layer_points(setting: Setting) -> Iterator[Point]:
    """Yield the device's ceilings, then one measurement per shape and precision."""
    precisions = PRECISIONS if setting.device.startswith("cuda") else CPU_PRECISIONS
    rates = {precision: _product_rate(setting, precision) for precision in precisions}
    bandwidth = _bandwidth(setting)
    yield {"flops_per_second": rates, "bytes_per_second": bandwidth, "machine": Machine.here(setting.device).__dict__}
    for shape in shapes(setting.tiny):
        step = training_step(shape, setting.device)
        sizes = LayerSizes.from_config(shape.config())
        flops = sizes.step_flops_per_token * shape.tokens
        moved = sizes.step_bytes_per_token(shape.tokens) * shape.tokens
        for precision in precisions:
            with products_in(precision, setting.device):
                seconds = median_seconds(step, setting.device)
            floor = max(flops / rates[precision], moved / bandwidth)
            yield {
                "shape": shape.name,
                "precision": precision,
                "milliseconds": 1e3 * seconds,
                "tokens_per_second": shape.tokens / seconds,
                "flops_bound_ms": 1e3 * flops / rates[precision],
                "bytes_bound_ms": 1e3 * moved / bandwidth,
                "share_of_roofline": floor / seconds,
            }


def training_step(shape: PaperShape, device: str) -> Callable[[], None]:
    """Return a function that takes one step on random data; the optimizer is that of training."""
    with torch.device(device):
        layer = build_layer(shape.config())
        assert isinstance(layer, MxD)
        torch.nn.init.normal_(layer.decoder.weight, std=0.02)  # at zero, half of the gradients would be zero
        x_BI, y_BO = (torch.randn(shape.tokens, shape.width) for _ in range(2))
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-4, weight_decay=0.0, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        normalized_mse(layer(x_BI).output_TO, y_BO).backward()
        optimizer.step()

    return step


@contextmanager
def products_in(precision: Precision, device: str) -> Iterator[None]:
    """Compute matrix products in this precision inside the context."""
    autocast = torch.autocast(device.partition(":")[0], torch.bfloat16, enabled=precision == "bfloat16")
    with matmul_precision("high" if precision == "tf32" else "highest"), autocast:
        yield


def _product_rate(setting: Setting, precision: Precision) -> float:
    """FLOP/s of a large matrix product of random numbers."""
    size = TINY_PRODUCT_SIZE if setting.tiny else PRODUCT_SIZE
    left, right = (torch.randn(size, size, device=setting.device) for _ in range(2))
    if precision == "bfloat16":
        left, right = left.bfloat16(), right.bfloat16()
    with products_in("tf32" if precision == "tf32" else "float32", setting.device):
        return 2 * size**3 / median_seconds(lambda: left @ right, setting.device)


def _bandwidth(setting: Setting) -> float:
    """Bytes read and written per second by a large copy."""
    numbers = TINY_COPY_NUMBERS if setting.tiny else COPY_NUMBERS
    source = torch.randn(numbers, device=setting.device)
    target = torch.empty_like(source)
    return 8 * numbers / median_seconds(lambda: target.copy_(source), setting.device)
