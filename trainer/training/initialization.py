"""Initialisation of a layer's weights.

- ``random``: every weight as in torch's Linear, and D zero; the paper's initialisation.
- ``examples``: each expert is one example token. Its gate points at the token's input and its scaling at the token's
  output, both centred. The layer then starts as a nearest-neighbour answer over K examples: every expert is useful from
  the first step, and a mean-ablated mixing vector explains nothing. One hidden unit is held constant and D reads only
  that unit, so z D is 1 and c_n is what the expert writes. The other units, with the original MLP's encoder, make the
  output depend on the input later.

Shapes: T tokens, I input width, H hidden width, O output width, N experts.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.config.layer import method_traits
from mxd.trainer.config.training import TrainConfig
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.layers.mxd import ACTIVATIONS, SMALLEST_NORM, MxD, SparseLayer, drawn_weight, spatial_median

GATE_ROW_NORM = 1 / math.sqrt(3)
"""Norm of a gate row, as in torch's Linear."""
SCALE_TOKENS = 8192
AT_A_TIME = 1024
"""Number of tokens, or of experts, that are computed at a time."""
CENTRE_STEPS = 10
GATE_NOISE = 0.1
"""Relative noise on the gate rows if an example has to be used by several experts."""


def needs_sample(config: TrainConfig) -> bool:
    """True if the layer is initialised from examples; by default where its method can be."""
    by_default = method_traits(config.method).initializes_from_examples
    return by_default if config.init == "auto" else config.init == "examples"


@torch.no_grad()
def initialize(layer: SparseLayer, config: TrainConfig, language_model: LanguageModel, sample: MlpActivations) -> None:
    """Initialise a new layer in place from examples, which are activations of the text."""
    table_NM = layer.table
    assert isinstance(table_NM, nn.Parameter)
    x_TI, y_TO = sample.inputs_for(layer).to(table_NM), sample.output_TO.to(table_NM)
    own, count = layer.own_experts, layer.config.num_experts
    mixes_hidden = method_traits(layer.method).mixes_hidden
    if isinstance(layer, MxD):
        copy_encoder(layer, language_model, config.layer)
        decoder_OH = language_model.architecture.decoder_weight(config.layer)
        if mixes_hidden:
            layer.decoder.weight.copy_(decoder_OH)
        else:
            _hold_one_unit(layer, decoder_OH, x_TI[:SCALE_TOKENS])
    # Sampled without replacement; they repeat if there are more experts than tokens.
    order_T = torch.randperm(len(x_TI), generator=_generator(config))
    example_N = order_T[torch.arange(count)[own] % len(x_TI)].to(x_TI.device)
    weight_T1 = loss_weights(y_TO)
    mean_I, mean_O = (weight_T1.T @ x_TI)[0], (weight_T1.T @ y_TO)[0]

    def scalings(example_E: Tensor) -> Tensor:
        """Rows of the table, [E, M]."""
        if mixes_hidden:
            return pattern(x_TI[example_E]) - mean_pattern_H
        return F.normalize(y_TO[example_E] - mean_O, dim=1)  # unit rows, as in the measurements

    if mixes_hidden:
        pattern = hidden_pattern(language_model, config.layer)
        mean_pattern_H = _sum(pattern, x_TI[:SCALE_TOKENS]) / len(x_TI[:SCALE_TOKENS])
    gate_NI = layer.gate.weight
    noise_NI = None
    if count > len(x_TI):
        draw = partial(torch.Tensor.normal_, generator=_generator(config))
        noise_NI = drawn_weight(x_TI.shape[1], count, rows=own, draw=draw)
    # Some experts at a time, because copies of whole tables would take more memory than training.
    for first in range(0, len(example_N), AT_A_TIME):
        part = slice(first, first + AT_A_TIME)
        directions_EI = F.normalize(x_TI[example_N[part]] - mean_I, dim=1)
        if noise_NI is not None:
            noise_EI = F.normalize(noise_NI[part].to(directions_EI), dim=1)
            directions_EI = F.normalize(directions_EI + GATE_NOISE * noise_EI, dim=1)
        gate_NI[part] = GATE_ROW_NORM * directions_EI
        table_NM[part] = scalings(example_N[part])
    layer.gate.bias.copy_(-(gate_NI @ mean_I))  # all scores are 0 at the mean input
    layer.get_parameter("output_bias").copy_(mean_O)
    mixing_TM = _mixing(layer, x_TI[:SCALE_TOKENS])
    if isinstance(layer, MxD) and layer.config.mixing == "centred":
        layer.mixing_centre_M.copy_(spatial_median(mixing_TM, mixing_TM.mean(dim=0), steps=CENTRE_STEPS))
    _fit_scale(layer, x_TI[:SCALE_TOKENS], mixing_TM, y_TO[:SCALE_TOKENS])


def _mixing(layer: SparseLayer, x_TI: Tensor) -> Tensor:
    """Mixing of tokens that every process has, [T, M]. Of a sharded layer, each process routes some of every few."""
    if layer.shards is None:
        return layer.mixing(layer.route(x_TI))
    parts = []
    for x_EI in x_TI.split(AT_A_TIME):
        each = -(-len(x_EI) // layer.shards.world_size)
        own_E = torch.arange(layer.shards.rank * each, (layer.shards.rank + 1) * each).clamp_max(len(x_EI) - 1)
        parts.append(layer.shards.all_gather(layer.mixing(layer.route(x_EI[own_E.to(x_EI.device)])))[: len(x_EI)])
    return torch.cat(parts)


def _sum(compute: Callable[..., Tensor], *tokens: Tensor) -> Tensor:
    """Sum over the tokens of a function of them, [T, …] to […], with the values of few of them in memory."""
    parts = zip(*(rows.split(AT_A_TIME) for rows in tokens), strict=True)
    return torch.stack([compute(*part).sum(dim=0) for part in parts]).sum(dim=0)


def copy_encoder(layer: MxD, language_model: LanguageModel, index: int) -> None:
    weights = language_model.architecture.encoder_weights(index)
    layer.encoder.weight.copy_(weights.weight_HI)
    layer.encoder.bias.copy_(weights.bias_H)
    if layer.encoder_gate is not None and weights.gate_weight_HI is not None and weights.gate_bias_H is not None:
        layer.encoder_gate.weight.copy_(weights.gate_weight_HI)
        layer.encoder_gate.bias.copy_(weights.gate_bias_H)


def hidden_pattern(language_model: LanguageModel, index: int) -> Callable[[Tensor], Tensor]:
    """Factors of the original MLP's hidden units on inputs, [T, I] to [T, H]: the hidden units are z times them. They
    are act(gate) if the MLP has a gate, and act(z) / z otherwise."""
    weights = language_model.architecture.encoder_weights(index)
    activation = ACTIVATIONS[language_model.architecture.mlp_shape(index).activation]

    def pattern(x_TI: Tensor) -> Tensor:
        if weights.gate_weight_HI is not None and weights.gate_bias_H is not None:
            return activation(F.linear(x_TI, weights.gate_weight_HI.to(x_TI), weights.gate_bias_H.to(x_TI)))
        z_TH = F.linear(x_TI, weights.weight_HI.to(x_TI), weights.bias_H.to(x_TI))
        z_TH = z_TH.where(z_TH.abs() > SMALLEST_NORM, SMALLEST_NORM)
        return activation(z_TH) / z_TH

    return pattern


def _hold_one_unit(layer: MxD, decoder_OH: Tensor, x_TI: Tensor) -> None:
    """Hold the hidden unit that matters least to the original MLP constant, and let D read only it, so z D is 1."""
    mean_H = _sum(layer.encode, x_TI) / len(x_TI)
    squares_H = _sum(lambda x_EI: (layer.encode(x_EI) - mean_H).square(), x_TI)
    least = int((squares_H * decoder_OH.to(mean_H).square().sum(dim=0)).argmin())
    for linear in filter(None, (layer.encoder, layer.encoder_gate)):
        linear.weight[least] = 0
        linear.bias[least] = 1
    layer.decoder.weight.zero_()
    layer.decoder.weight[:, least] = 1 / layer.encode(x_TI[:1])[0, least]


def loss_weights(target_TO: Tensor) -> Tensor:
    """Weights of the tokens in the training loss, 1 / ‖y‖², [T, 1]; their sum is 1. In plain sums, the first tokens of
    sequences with their massive activations outweigh all other tokens."""
    weight_T1: Tensor = 1 / torch.linalg.vector_norm(target_TO, dim=1, keepdim=True).square().clamp_min(SMALLEST_NORM)
    return weight_T1 / weight_T1.sum()


def _fit_scale(layer: SparseLayer, x_TI: Tensor, mixing_TM: Tensor, target_TO: Tensor) -> None:
    """Scale the experts' contributions, and set the output bias, to the lowest normalised MSE."""
    bias_O, weight_T1 = layer.get_parameter("output_bias"), loss_weights(target_TO)
    # Not every device has float64. It makes the scale that of one process: AdamW's first steps enlarge its rounding.
    dtype = torch.float64 if x_TI.device.type in ("cpu", "cuda") else torch.float32

    def added(x_EI: Tensor, mixing_EM: Tensor) -> Tensor:
        return layer.decode_mixed(layer.dense_output(x_EI), mixing_EM) - bias_O

    def products(x_EI: Tensor, mixing_EM: Tensor, target_EO: Tensor, weight_E1: Tensor) -> Tensor:
        centred_EO = added(x_EI, mixing_EM) - mean_added_O
        pairs = [centred_EO * (target_EO - mean_O), centred_EO.square()]
        return torch.stack([(weight_E1 * pair_EO).sum(dim=1, dtype=dtype) for pair_EO in pairs], dim=1)

    mean_O = (weight_T1.T @ target_TO)[0]
    mean_added_O = _sum(lambda weight_E1, *part: weight_E1 * added(*part), weight_T1, x_TI, mixing_TM)
    explained, squares = _sum(products, x_TI, mixing_TM, target_TO, weight_T1)
    scale = (explained / squares.clamp_min(SMALLEST_NORM)).to(x_TI)
    layer.table.mul_(scale)
    if isinstance(layer, MxD) and layer.config.mixing == "centred":
        layer.mixing_centre_M.mul_(scale)
    if layer.reads != "mlp-output":  # an autoencoder subtracts the bias before routing, so another bias reroutes
        bias_O.copy_(mean_O - scale * mean_added_O)


def _generator(config: TrainConfig) -> torch.Generator:
    return torch.Generator().manual_seed(config.seed)
