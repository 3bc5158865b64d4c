"""Steer and attach layers in models of interp-engine: FOLDER → largest difference of residuals per family.

What interp-engine captures is compared with the hidden states of the same model, run by transformers.
"""

from pathlib import Path
from typing import Any

import torch
from interp_engine import capture, load_model
from torch import Tensor

from tests.interop.oracles.small_runs import IDS, SmallRun, differences_of, report

POINT = "resid_post.1"
"""Residual stream after the block with the layer."""


@torch.no_grad()
def plain(model: Any) -> Tensor:
    """Residual stream, without interp-engine."""
    read: list[Any] = []
    block = next(it for name, it in model.named_modules() if name.endswith(("layers.1", "h.1")))
    handle = block.register_forward_hook(lambda _module, _args, output: read.append(output))
    model(IDS)
    handle.remove()
    result: Tensor = read[0][0] if isinstance(read[0], tuple) else read[0]
    return result


def differences(small: SmallRun, folder: Path) -> dict[str, float]:
    small.model.save_pretrained(folder)
    small.tokenizer.save_pretrained(folder)
    engine: Any = load_model(str(folder), backend="eager", device="cpu", dtype="float32")
    return differences_of(small, engine.hf_model, lambda _use: capture(engine, IDS, [POINT])[POINT], plain)


report("interp-engine", differences)
