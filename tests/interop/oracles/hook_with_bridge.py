"""Steer and attach layers in models behind a TransformerBridge: FOLDER → largest difference of logits per family.

The bridge has modules of its own around those of the model, with the same weights.
"""

from pathlib import Path

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoTokenizer

from tests.interop.oracles.small_runs import IDS, SmallRun, differences_of, logits, report


def differences(small: SmallRun, folder: Path) -> dict[str, float]:
    @torch.no_grad()
    def bridged(_use: str) -> Tensor:
        """Logits of the prompt, by a bridge that is made now."""
        made = {"hf_model": small.model, "tokenizer": AutoTokenizer.from_pretrained(folder), "device": "cpu"}
        result: Tensor = TransformerBridge.boot_transformers(str(folder), **made)(IDS, return_type="logits")
        return result

    small.model.save_pretrained(folder)
    small.tokenizer.save_pretrained(folder)
    small.model.set_attn_implementation("eager")  # as the bridge does
    return differences_of(small, small.model, bridged, logits)


report("transformer-lens", differences)
