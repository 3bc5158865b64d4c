"""Steer and attach layers in models behind a TransformerBridge: FOLDER → largest difference of logits per family.

The bridge has modules of its own around those of the model, with the same weights.
"""

from pathlib import Path

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoTokenizer, PreTrainedModel

from tests.interop.oracles.small_runs import IDS, SmallRun, report, uses


@torch.no_grad()
def plain(model: PreTrainedModel) -> Tensor:
    result: Tensor = model(IDS).logits
    return result


@torch.no_grad()
def bridged(small: SmallRun, folder: Path) -> Tensor:
    """Logits of the prompt, by a bridge that is made now."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    bridge = TransformerBridge.boot_transformers(str(folder), hf_model=small.model, tokenizer=tokenizer, device="cpu")
    result: Tensor = bridge(IDS, return_type="logits")
    return result


def differences(small: SmallRun, folder: Path) -> dict[str, float]:
    small.model.save_pretrained(folder)
    small.tokenizer.save_pretrained(folder)
    small.model.set_attn_implementation("eager")  # as the bridge does
    pairs: dict[str, tuple[Tensor, Tensor]] = {}
    for name, use in uses(small, small.model).items():
        with use():
            pairs[name] = (bridged(small, folder), plain(small.model))
    return {name: float((a - b).abs().max()) for name, (a, b) in pairs.items()}


report("transformer-lens", differences)
