"""Parameter matching: how many experts a layer gets, so that methods are compared at equal parameter counts.

The reference is the paper's: a TopK transcoder with 32 features per input value. N is the largest number of experts for
which the layer has no more parameters, output bias excluded. A gate that needs fewer parameters than a flat one leaves
room for more experts: about twice as many with a product-key gate.
"""

from __future__ import annotations

from bisect import bisect_right

import torch

from mxd.trainer.config import LayerConfig
from mxd.trainer.layers.registry import build_layer

FEATURES_PER_INPUT = 32


def matched_num_experts(config: LayerConfig, mlp_input_width: int) -> int:
    """Return the number of experts that matches a transcoder with 32 features per input value; at least 1.

    For the MxD of a plain MLP, the paper's own counts (21,490 for GPT-2, where the exact match is 21,504) give the
    encoder as many biases as the transcoder has features. We use those counts, so that results are comparable.

    Args:
        config: layer settings; its N and K are ignored.
        mlp_input_width: input width of the MLP, which an autoencoder does not read.
    """
    features = FEATURES_PER_INPUT * mlp_input_width
    if config.method == "skip-transcoder":  # gets the transcoder's N, as in the paper
        config = config.model_copy(update={"method": "transcoder"})
    is_flat = config.gate.gate == "flat"
    if is_flat and config.method == "transcoder":
        return features
    if is_flat and config.encoder == "mlp" and config.method in ("mxd", "relu-mxd", "batch-topk-mxd"):
        widths = config.input_width + config.output_width
        return max(1, round(widths * (features - config.hidden_width) / (widths + 1)))
    budget = features * (mlp_input_width + 1 + config.output_width)
    return _largest_within(budget, config)


def _largest_within(budget: int, config: LayerConfig) -> int:
    """Largest N whose layer has at most ``budget`` parameters, output bias excluded; at least 1."""
    smallest = config.gate.groups or 1

    def parameters(num_experts: int) -> int:
        gate = config.gate.model_copy(update={"top_groups": None})
        candidate = config.model_copy(update={"num_experts": num_experts, "k": 1, "gate": gate})
        with torch.device("meta"):
            return build_layer(candidate).num_parameters - config.output_width

    upper = smallest
    while parameters(upper) <= budget:
        upper *= 2
    return max(1, smallest + bisect_right(range(smallest, upper), budget, key=parameters) - 1)
