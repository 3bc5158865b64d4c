"""Steer and attach layers in models behind a TransformerBridge: FOLDER → largest difference of logits per family.

The bridge has modules of its own around those of the model, with the same weights. It is made before the layer is used,
and again while it is, of a copy: a second bridge of one model leaves out what was changed in the first.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoTokenizer, PreTrainedModel

from tests.interop.oracles.small_runs import IDS, SmallRun, differences_of, logits, report


def differences(small: SmallRun, folder: Path) -> dict[str, float]:
    def bridge(model: PreTrainedModel) -> Any:
        made = {"hf_model": model, "tokenizer": AutoTokenizer.from_pretrained(folder), "device": "cpu"}
        return TransformerBridge.boot_transformers(str(folder), **made)

    @torch.no_grad()
    def bridged(made: Any) -> Tensor:
        result: Tensor = made(IDS, return_type="logits")
        return result

    small.model.save_pretrained(folder)
    small.tokenizer.save_pretrained(folder)
    small.model.set_attn_implementation("eager")  # as the bridge does
    again = differences_of(small, small.model, lambda _use: bridged(bridge(deepcopy(small.model))), logits)
    earlier = bridge(small.model)
    before = differences_of(small, small.model, lambda _use: bridged(earlier), logits)
    return {use: max(again[use], before[use]) for use in again}


report("transformer-lens", differences)
