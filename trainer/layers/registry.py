"""Layer classes by method, and loading of saved layers."""

from bisect import bisect_right
from importlib import import_module
from pathlib import Path

import torch

from mxd.trainer.config.layer import WEIGHTS_FILE, LayerConfig, Method, method_traits, read_layer_config
from mxd.trainer.errors import UserError
from mxd.trainer.layers.mxd import MxD, SparseLayer, read_weights
from mxd.trainer.layers.sharding import Shards
from mxd.trainer.layers.variants import (
    Autoencoder,
    BatchTopK,
    JumpReluSkipTranscoder,
    JumpReluTranscoder,
    Molt,
    ReluMxD,
    SkipTranscoder,
    Transcoder,
)

TRAINED = (MxD, BatchTopK, Transcoder, SkipTranscoder, Autoencoder, Molt)
IMPORTED = (ReluMxD, JumpReluTranscoder, JumpReluSkipTranscoder)
_CLASSES: dict[Method, type[SparseLayer]] = {each.method: each for each in (*TRAINED, *IMPORTED)}


def register_layers(method: Method, layer_class: type[SparseLayer]) -> None:
    _CLASSES[method] = layer_class


def build_layer(config: LayerConfig, shards: Shards | None = None) -> SparseLayer:
    """Build a layer with random weights, or this process's slice of it. The slices are never in memory together. Raises
    UserError if the method's experts cannot be sharded, or there are fewer of them than processes."""
    if config.method not in _CLASSES:
        import_module(method_traits(config.method).module)
    layer_class = _CLASSES[config.method]
    if shards is None:
        return layer_class(config)
    if not layer_class.expert_tables:
        raise UserError(f"The experts of a {config.method} cannot be sharded. Omit --parallel=experts.")
    if shards.world_size > config.num_experts:
        raise UserError(f"{config.num_experts} experts cannot be sharded over {shards.world_size} processes.")
    return layer_class(config, shards)


@torch.inference_mode(mode=False)  # weights created in inference mode could never be trained again
def load_layer(folder: Path) -> SparseLayer:
    """Load a layer that ``SparseLayer.save`` wrote, in float32 on the CPU. Raises UserError if the folder holds no
    layer, or a damaged one."""
    config = read_layer_config(folder)
    with torch.device("meta"):
        layer = build_layer(config)
    layer.load_state_dict(read_weights(folder / WEIGHTS_FILE, layer), assign=True)
    return layer.eval()


FEATURES_PER_INPUT = 32


def matched_num_experts(config: LayerConfig, mlp_input_width: int) -> int:
    """Return the number of experts that matches a transcoder with 32 features per input value; at least 1.

    For the MxD of a plain MLP, the paper's own counts (21,490 for GPT-2, where the exact match is 21,504) give the
    encoder as many biases as the transcoder has features. We use those counts, so that results are comparable.
    The N and K in the config are ignored. An autoencoder does not read the MLP's input, whose width is given.
    """
    features = FEATURES_PER_INPUT * mlp_input_width
    if config.method == "skip-transcoder":  # gets the transcoder's N, as in the paper
        config = config.model_copy(update={"method": "transcoder"})
    if config.method == "transcoder":
        return features
    if config.encoder == "mlp" and config.method in ("mxd", "batch-topk-mxd"):
        widths = config.input_width + config.output_width
        return max(1, round(widths * (features - config.hidden_width) / (widths + 1)))
    # The largest N with at most as many parameters as the transcoder, output bias excluded.
    budget = features * (mlp_input_width + 1 + config.output_width)

    def parameters(num_experts: int) -> int:
        candidate = config.model_copy(update={"num_experts": num_experts, "k": 1})
        with torch.device("meta"):
            return build_layer(candidate).num_parameters - config.output_width

    upper = 1
    while parameters(upper) <= budget:
        upper *= 2
    return max(1, bisect_right(range(1, upper), budget, key=parameters))
