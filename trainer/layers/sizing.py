"""Parameter matching: how many experts a layer gets, so that methods are compared at equal parameter counts.

The reference is the paper's: a TopK transcoder with 32 features per input value. N is the largest number of experts for
which the layer has no more parameters, output bias excluded.
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
    if config.method == "transcoder":
        return features
    if config.encoder == "mlp" and config.method in ("mxd", "batch-topk-mxd"):
        widths = config.input_width + config.output_width
        return max(1, round(widths * (features - config.hidden_width) / (widths + 1)))
    budget = features * (mlp_input_width + 1 + config.output_width)
    return _largest_within(budget, config)


def _largest_within(budget: int, config: LayerConfig) -> int:
    """Largest N whose layer has at most ``budget`` parameters, output bias excluded; at least 1."""

    def parameters(num_experts: int) -> int:
        candidate = config.model_copy(update={"num_experts": num_experts, "k": 1})
        with torch.device("meta"):
            return build_layer(candidate).num_parameters - config.output_width

    upper = 1
    while parameters(upper) <= budget:
        upper *= 2
    return max(1, bisect_right(range(1, upper), budget, key=parameters))
