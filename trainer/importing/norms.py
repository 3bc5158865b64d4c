"""The norms around an MLP, and layers that read one of them before its weight and bias.

A layer that was fitted where these had been folded into the MLP reads n; the MLP of the Hugging Face language model
reads x = n w + b. So W n + c = (W / w) x + (c - (W / w) b), row by row.

What such a layer writes may lack its mean over the residual stream's width: TransformerLens takes it out of everything
that is written where every reader is a LayerNorm, which subtracts it anyway. Nothing has to be put back.

Shapes: T tokens, I input width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainer.errors import UserError
from trainer.language_model import LanguageModel
from trainer.stand_ins import Mlp

READERS = {
    "gate.weight": "gate.bias",
    "encoder.weight": "encoder.bias",
    "encoder_gate.weight": "encoder_gate.bias",
    "skip.weight": "output_bias",
}
"""Tensors that read the layer's input, and where what is constant in it goes."""
LARGE = 1e3
"""So large that the small number that a norm adds under its root plays no part."""


@dataclass(frozen=True)
class Affine:
    """What a norm does last: times a weight, plus a bias."""

    weight_I: Tensor
    bias_I: Tensor
    centres: bool
    """Whether it is a LayerNorm, which takes the mean out first."""


@dataclass(frozen=True)
class Around:
    """The norms in front of an MLP and behind it."""

    before: nn.Module | None
    behind: nn.Module | None


@torch.no_grad()
def norms_around(language_model: LanguageModel, layer: int) -> Around:
    """Found by watching: the norm that gives exactly what the MLP reads, and the one that reads what it gives."""
    block = language_model.anatomy.block(layer)
    seen: list[tuple[nn.Module, Tensor, Tensor]] = []
    given: list[tuple[Tensor, Tensor]] = []

    def watch_mlp(x: Tensor, mlp: Mlp) -> Tensor:
        given.append((x, mlp()))
        return given[0][1]

    def watch(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append((module, inputs[0], output))

    norms = [module for module in block.modules() if _is_norm(module)]
    handles = [norm.register_forward_hook(watch) for norm in norms]
    try:
        with language_model.stand_in({layer: watch_mlp}):
            language_model.logits(torch.tensor([[1, 2, 3]]))
    finally:
        for handle in handles:
            handle.remove()
    read, written = given[0]
    before = [norm for norm, _, output in seen if _same(output, read)]
    behind = [norm for norm, x, _ in seen if _same(x, written)]
    return Around(next(iter(before), None), next(iter(behind), None))


def _is_norm(module: nn.Module) -> bool:
    """Whether a module's weight has one dimension."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 1


def _same(value: Tensor, wanted: Tensor) -> bool:
    return value.numel() == wanted.numel() and torch.equal(value.reshape(wanted.shape), wanted)


@torch.no_grad()
def affine_of(norm: nn.Module) -> Affine:
    """Weight and bias of a norm, whatever it keeps them as: some RMSNorms keep their weight less one."""
    if isinstance(norm, nn.LayerNorm):
        weight_I = norm.weight.detach().float()
        bias = getattr(norm, "bias", None)
        bias_I = torch.zeros_like(weight_I) if bias is None else bias.detach().float()
        return Affine(weight_I.cpu(), bias_I.cpu(), centres=True)
    kept = norm.get_parameter("weight")
    weight_I = norm(torch.full_like(kept, LARGE).unsqueeze(0))[0].float().cpu()
    return Affine(weight_I, torch.zeros_like(weight_I), centres=False)


def unfolded(tensors: Mapping[str, Tensor], affine: Affine) -> dict[str, Tensor]:
    """Tensors of a layer that reads a norm behind its weight and bias, from those of one that reads it before.

    Raises:
        UserError: the norm's weight has a zero, so what was read there cannot be told from what is read here.
    """
    if not bool(affine.weight_I.abs().gt(0).all()):
        raise UserError(
            "The norm in front of the MLP has a weight of exactly 0, so a layer fitted before that weight cannot be "
            "converted to one behind it."
        )
    weight_I, bias_I = affine.weight_I.double(), affine.bias_I.double()
    found = dict(tensors)
    for name, constant in READERS.items():
        if name in tensors:
            scaled = tensors[name].double() / weight_I
            found[name] = scaled.float()
            found[constant] = (found[constant].double() - scaled @ bias_I).float()
    return found
