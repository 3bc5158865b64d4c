"""Starting values of a layer: the paper's, or ones that know the MLP and its text.

- ``paper``: everything as torch's Linear, D zero.
- ``encoder``: E is the original MLP's. D can then become the original too, and the mean of the mixing a C does what
  the layer did: faithful after few tokens, with a routing that does little.
- ``full``: E and D are the original MLP's and every c_n is near one constant. Perfect from the first step, and the
  routing does nothing: the trap that a faithful layer alone does not show.
- ``examples``: each expert is one token of the text. Its gate points at the token's input and its scaling at the
  token's output, both less their means, so the layer begins as a nearest-neighbour answer of K examples: every expert
  has something to do from the first step, and nothing can be had from the mixing's mean. One hidden unit is held
  constant and D reads it alone, so z D is 1 and c_n is what the expert writes; the other units, at the original MLP's
  encoder, are there to make that depend on the input.

Shapes: T tokens, I input width, H hidden width, O output width, N experts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.config import Method, Start, TrainConfig
from trainer.errors import UserError
from trainer.language_model import Capture, LanguageModel
from trainer.layers.mxd import GluMxD, MxD
from trainer.layers.sparse import SparseLayer

ROW_NORM = 1 / math.sqrt(3)
"""Of a gate's row as torch's Linear draws it."""
TOKENS_TO_SCALE = 8192
SPREAD = 0.1
"""How far the scalings of ``full``, and the gates of examples that had to be taken twice, start from one another."""
AS_EXAMPLES: frozenset[Method] = frozenset(
    {"mxd", "batch-topk-mxd", "jumprelu-mxd", "cross-layer-mxd", "transcoder", "skip-transcoder", "autoencoder"}
)
"""Methods that start as examples where nothing else is said."""


def chosen_start(config: TrainConfig) -> Start:
    """What ``auto`` stands for, or what was chosen."""
    if config.start != "auto":
        return config.start
    return "examples" if config.method in AS_EXAMPLES else "paper"


def needs_sample(config: TrainConfig) -> bool:
    """Whether the start looks at activations first."""
    return chosen_start(config) in ("full", "examples")


@torch.no_grad()
def start_layer(layer: SparseLayer, config: TrainConfig, language_model: LanguageModel, sample: Capture | None) -> None:
    """Give a new layer, all of whose values are torch's, those of ``config.start``.

    Args:
        sample: activations of the text, where ``needs_sample`` says so.

    Raises:
        UserError: the method has no such start.
    """
    start = chosen_start(config)
    if start == "paper":
        return
    if start == "examples":
        assert sample is not None
        _start_at_examples(layer, config, language_model, sample)
        return
    mxd = _as_mxd(layer, start)
    _start_at_encoder(mxd, language_model, config.layer)
    if start == "full":
        assert sample is not None
        _start_at_decoder(mxd, language_model, config, sample)


def _as_mxd(layer: SparseLayer, start: Start) -> MxD:
    if not isinstance(layer, MxD):
        raise UserError(f"A {layer.method} has no encoder to start from; leave --start at paper instead of {start}.")
    return layer


def _start_at_encoder(layer: MxD, language_model: LanguageModel, index: int) -> None:
    weights = language_model.encoder_weights(index)
    layer.encoder.weight.copy_(weights.weight_HI)
    layer.encoder.bias.copy_(weights.bias_H)
    if isinstance(layer, GluMxD) and weights.gate_weight_HI is not None and weights.gate_bias_H is not None:
        layer.encoder_gate.weight.copy_(weights.gate_weight_HI)
        layer.encoder_gate.bias.copy_(weights.gate_bias_H)


def _start_at_decoder(layer: MxD, language_model: LanguageModel, config: TrainConfig, sample: Capture) -> None:
    if layer.table.shape[1] != layer.config.output_width or layer.span > 1:
        raise UserError(f"A {layer.method} cannot start at the original decoder; choose another --start.")
    layer.decoder.weight.copy_(language_model.decoder_weight(config.layer))
    x_TI = sample.read_by(layer)[:TOKENS_TO_SCALE]
    summed = layer.route(x_TI.to(layer.table.device)).coefficients_TK.sum(dim=1).mean()
    noise_NO = torch.randn(layer.scaling_NO.shape, generator=_generator(config))
    layer.scaling_NO.copy_((1 + SPREAD * noise_NO) / summed)


def _start_at_examples(layer: SparseLayer, config: TrainConfig, language_model: LanguageModel, sample: Capture) -> None:
    table_NO = layer.table
    if table_NO.shape[1] != layer.config.output_width or not isinstance(table_NO, nn.Parameter):
        raise UserError(f"The experts of a {layer.method} cannot start as examples; choose another --start.")
    x_TI, y_TO = sample.read_by(layer), sample.output_TO
    if isinstance(layer, MxD):
        _start_at_encoder(layer, language_model, config.layer)
        _hold_one_unit(layer, language_model.decoder_weight(config.layer), x_TI[:TOKENS_TO_SCALE])
    chosen_N = _examples(len(table_NO), len(x_TI), config).to(x_TI.device)
    mean_I, mean_O = x_TI.mean(dim=0), y_TO.mean(dim=0)
    directions_NI = F.normalize(x_TI[chosen_N] - mean_I, dim=1)
    if len(table_NO) > len(x_TI):
        noise_NI = torch.randn(directions_NI.shape, generator=_generator(config)).to(directions_NI)
        directions_NI = F.normalize(directions_NI + SPREAD * F.normalize(noise_NI, dim=1), dim=1)
    chosen_N = chosen_N[layer.gate.start(ROW_NORM * directions_NI, mean_I)]
    layer.get_parameter("output_bias").copy_(mean_O)
    wanted = layer.parts(y_TO[chosen_N] - mean_O)
    table_NO.copy_(torch.cat([F.normalize(part, dim=1) for part in wanted], dim=1))  # of one length, as was measured
    table_NO.mul_(_scale(layer, x_TI[:TOKENS_TO_SCALE], (y_TO - mean_O)[:TOKENS_TO_SCALE]))


def _examples(wanted: int, tokens: int, config: TrainConfig) -> Tensor:
    """Places of tokens drawn without replacement, and again from the first where there are too few."""
    order_T = torch.randperm(tokens, generator=_generator(config))
    return order_T[torch.arange(wanted) % tokens]


def _hold_one_unit(layer: MxD, decoder_OH: Tensor, x_TI: Tensor) -> None:
    """Make the hidden unit of which the original MLP makes least constant, and let D read it alone: zD is 1."""
    hidden_TH = layer.encode(x_TI.to(layer.encoder.weight))
    least = int((hidden_TH.std(dim=0) * decoder_OH.to(hidden_TH).norm(dim=0)).argmin())
    for linear in (layer.encoder, layer.encoder_gate) if isinstance(layer, GluMxD) else (layer.encoder,):
        linear.weight[least] = 0
        linear.bias[least] = 1
    layer.decoder.weight.zero_()
    layer.decoder.weight[:, least] = 1 / layer.encode(x_TI[:1].to(layer.encoder.weight))[0, least]


def _scale(layer: SparseLayer, x_TI: Tensor, target_TO: Tensor) -> Tensor:
    """The factor by which the contributions come nearest to their targets, by least squares: one for each MLP that is
    written, [O]."""
    x_TI = x_TI.to(layer.table)
    added_TO = layer.contribution(layer.dense_output(x_TI), layer.route(x_TI))
    pairs = zip(layer.parts(added_TO), layer.parts(target_TO.to(added_TO)), strict=True)
    return torch.cat([((a * y).sum() / a.square().sum().clamp_min(1e-12)).expand(a.shape[1]) for a, y in pairs])


def _generator(config: TrainConfig) -> torch.Generator:
    return torch.Generator().manual_seed(config.seed)
