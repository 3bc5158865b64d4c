"""Time of a training step of an MxD, as ``mxd train`` takes it, and its share of the roofline.

The floor is the larger of FLOPs over the measured product rate and bytes over the measured bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.gpu.clock import median_seconds
from benchmarks.gpu.sections import Point, Setting
from benchmarks.gpu.shapes import PaperShape, shapes
from benchmarks.trainer.timing import Machine
from mxd.trainer.config.training import MatmulPrecision, OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.training.layer_trainer import WARM_UP_STEPS, Launch, LayerTrainer
from mxd.trainer.training.precision import matmul_precision
from mxd.trainer.training.rates import LayerSizes

PRECISIONS: tuple[MatmulPrecision, ...] = ("medium", "high", "highest")
STEPS = 100_000
"""Length of the learning-rate schedule, of which only the first steps are taken."""
COMPARED_STEPS = 5
PRODUCT_SIZE, TINY_PRODUCT_SIZE = 8192, 64
COPY_NUMBERS, TINY_COPY_NUMBERS = 1 << 30, 1 << 12


def layer_points(setting: Setting) -> Iterator[Point]:
    """Yield the device's ceilings, then one measurement per shape, precision and way to launch."""
    rates = {precision: _product_rate(setting, precision) for precision in PRECISIONS}
    bandwidth = _bandwidth(setting)
    yield {"flops_per_second": rates, "bytes_per_second": bandwidth, "machine": Machine.here(setting.device).__dict__}
    launches: tuple[Launch, ...] = ("eager", "graph") if setting.device.startswith("cuda") else ("eager",)
    for shape in shapes(setting.tiny):
        batch = random_batch(shape, setting.device)
        sizes = LayerSizes.from_config(shape.config())
        flops = sizes.step_flops_per_token * shape.tokens
        moved = sizes.step_bytes_per_token(shape.tokens) * shape.tokens
        for precision in PRECISIONS:
            floor = max(flops / rates[precision], moved / bandwidth)
            weights: dict[str, Tensor] = {}
            for launch in launches:
                trainer = shape_trainer(shape, setting.device, precision, launch)
                for _ in range(WARM_UP_STEPS + COMPARED_STEPS):
                    trainer.train_step(batch)
                weights[launch] = trainer.layer.table.detach().clone()
                seconds = median_seconds(partial(trainer.train_step, batch), setting.device)
                yield {
                    "shape": shape.name,
                    "precision": precision,
                    "launch": launch,
                    "milliseconds": 1e3 * seconds,
                    "tokens_per_second": shape.tokens / seconds,
                    "flops_bound_ms": 1e3 * flops / rates[precision],
                    "bytes_bound_ms": 1e3 * moved / bandwidth,
                    "share_of_roofline": floor / seconds,
                    "equals_eager": torch.equal(weights[launch], weights["eager"]),
                }


def random_batch(shape: PaperShape, device: str) -> MlpActivations:
    """Random activations of one step."""
    return MlpActivations(*(torch.randn(shape.tokens, shape.width, device=device) for _ in range(2)))


def shape_trainer(shape: PaperShape, device: str, precision: MatmulPrecision, launch: Launch = "eager") -> LayerTrainer:
    """Trainer of a layer with random weights; the same weights at each call."""
    torch.manual_seed(0)
    with torch.device(device):
        layer = build_layer(shape.config())
        torch.nn.init.normal_(layer.get_parameter("decoder.weight"), std=0.02)  # at zero, most gradients would be zero
    config = TrainConfig(
        name="step",
        language_model="none",
        layer=0,
        text=TextConfig(dataset="none"),
        tokens=STEPS * shape.tokens,
        optimizer=OptimizerConfig(batch_tokens=shape.tokens, learning_rate=1e-4, matmul_precision=precision),
    )
    return LayerTrainer.from_layer(layer, config, STEPS, launch=launch)


def _product_rate(setting: Setting, precision: MatmulPrecision) -> float:
    """FLOP/s of a large matrix product of random numbers."""
    size = TINY_PRODUCT_SIZE if setting.tiny else PRODUCT_SIZE
    left, right = (torch.randn(size, size, device=setting.device) for _ in range(2))
    if precision == "medium":
        left, right = left.bfloat16(), right.bfloat16()
    with matmul_precision("high" if precision == "high" else "highest"):
        return 2 * size**3 / median_seconds(lambda: left @ right, setting.device)


def _bandwidth(setting: Setting) -> float:
    """Bytes read and written per second by a large copy."""
    numbers = TINY_COPY_NUMBERS if setting.tiny else COPY_NUMBERS
    source = torch.randn(numbers, device=setting.device)
    target = torch.empty_like(source)
    return 8 * numbers / median_seconds(lambda: target.copy_(source), setting.device)
