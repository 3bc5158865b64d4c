"""Steer and attach layers in models of interp-engine: FOLDER → largest difference of residuals per family.

What interp-engine captures is compared with the hidden states of the same model, run by transformers.
"""

from pathlib import Path
from typing import Any

import torch
from interp_engine import capture, load_model
from torch import Tensor

from tests.interop.oracles.small_runs import IDS, SmallRun, report, uses

POINT = "resid_post.1"
"""Residual stream after the block with the layer."""


@torch.no_grad()
def plain(model: Any) -> Tensor:
    """Residual stream, without interp-engine."""
    block: list[Tensor] = []
    blocks = next(it for name, it in model.named_modules() if name.endswith(("layers.1", "h.1")))
    handle = blocks.register_forward_hook(
        lambda _module, _args, output: block.append(output[0] if isinstance(output, tuple) else output)
    )
    model(IDS)
    handle.remove()
    return block[0]


def differences(small: SmallRun, folder: Path) -> dict[str, float]:
    small.model.save_pretrained(folder)
    small.tokenizer.save_pretrained(folder)
    engine: Any = load_model(str(folder), backend="eager", device="cpu", dtype="float32")
    model = engine.hf_model
    found, before = {}, plain(model)
    for name, use in uses(small, model).items():
        with use():
            read, expected = capture(engine, IDS, [POINT])[POINT], plain(model)
        assert (expected - before).abs().max() > 1e-3, "The layer changes nothing"
        found[name] = float((read - expected).abs().max())
    return found


report("interp-engine", differences)
