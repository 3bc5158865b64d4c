"""Layers that a package writes, with inputs and outputs beside each: the frame of the scripts ``write_with_…``."""

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

EXPERTS, WIDTH = 40, 16


def randomize(layer: torch.nn.Module, without: str = "") -> None:
    """Give every parameter random values, thresholds positive ones."""
    with torch.no_grad():
        for name, value in layer.named_parameters():
            if name != without:
                value.copy_((torch.rand_like(value) if "threshold" in name else torch.randn_like(value)) * 0.3)


def write(name: str, save: Callable[[Path], object], layer: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Save a layer in the folder ``name`` of the folder that is the first argument, and its outputs beside it."""
    target, x = Path(sys.argv[1]) / name, torch.randn(200, WIDTH)
    save(target)
    with torch.no_grad():
        save_file({"x": x, "y": layer(x).contiguous()}, f"{target}.safetensors")


def report(package: str, names: Any) -> None:
    print(json.dumps({"version": version(package), "names": list(names)}))
