"""Conversion of layers that were trained with folded norms.

A layer trained with a folded norm reads n; the MLP of the Hugging Face model reads x = n w + b. So W n + c =
(W / w) x + (c - (W / w) b), row by row.

The outputs of such a layer may be centred over the residual stream's width, as TransformerLens does if every reader is
a LayerNorm. LayerNorms subtract the mean anyway, so nothing needs to be converted.

Shapes: T tokens, I input width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel

READERS = {
    "gate.weight": "gate.bias",
    "encoder.weight": "encoder.bias",
    "encoder_gate.weight": "encoder_gate.bias",
    "skip.weight": "output_bias",
}
"""Tensors that multiply the layer's input -> the bias that absorbs the constant part."""
LARGE = 1e3
"""Input so large that the norm's epsilon is negligible."""


@dataclass(frozen=True)
class Affine:
    """Weight and bias of a norm."""

    weight_I: Tensor
    bias_I: Tensor
    centres: bool
    """True if it is a LayerNorm, which subtracts the mean."""


@dataclass(frozen=True)
class NeighbouringNorms:
    """Norms before and after an MLP."""

    before: nn.Module | None
    behind: nn.Module | None


@torch.no_grad()
def find_norms(language_model: LanguageModel, layer: int) -> NeighbouringNorms:
    """Find the norms whose output or input equals the MLP's input or output, in a forward pass."""
    block = language_model.architecture.block(layer)
    seen: list[tuple[nn.Module, Tensor, Tensor]] = []
    given: list[tuple[Tensor, Tensor]] = []

    def watch_mlp(x: Tensor, mlp: Mlp) -> Tensor:
        given.append((x, mlp()))
        return given[0][1]

    def watch(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append((module, inputs[0].clone(), output.clone()))  # some blocks change them in place

    norms = [module for module in block.modules() if _is_norm(module)]
    handles = [norm.register_forward_hook(watch) for norm in norms]
    try:
        with language_model.replace_mlps({layer: watch_mlp}):
            language_model.logits(torch.tensor([[1, 2, 3]]))
    finally:
        for handle in handles:
            handle.remove()
    read, written = given[0]
    before = [norm for norm, _, output in seen if _same(output, read)]
    behind = [norm for norm, x, _ in seen if _same(x, written)]
    return NeighbouringNorms(next(iter(before), None), next(iter(behind), None))


def _is_norm(module: nn.Module) -> bool:
    """Return whether a module's weight has one dimension."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 1


def _same(value: Tensor, expected: Tensor) -> bool:
    return value.numel() == expected.numel() and torch.equal(value.reshape(expected.shape), expected)


@torch.no_grad()
def read_affine(norm: nn.Module) -> Affine:
    """Return weight and bias of a norm. An RMSNorm is probed, because some store their weight minus one."""
    if isinstance(norm, nn.LayerNorm):
        weight_I = norm.weight.detach().float()
        bias = getattr(norm, "bias", None)
        bias_I = torch.zeros_like(weight_I) if bias is None else bias.detach().float()
        return Affine(weight_I.cpu(), bias_I.cpu(), centres=True)
    stored = norm.get_parameter("weight")
    weight_I = norm(torch.full_like(stored, LARGE).unsqueeze(0))[0].float().cpu()
    return Affine(weight_I, torch.zeros_like(weight_I), centres=False)


def unfold(tensors: Mapping[str, Tensor], affine: Affine) -> dict[str, Tensor]:
    """Convert a layer that reads a norm's output before weight and bias to one that reads it after them.

    Raises:
        UserError: the norm's weight has a zero, so the conversion is impossible.
    """
    if not bool(affine.weight_I.abs().gt(0).all()):
        raise UserError(
            "The norm before the MLP has a weight of 0, so layers trained with folded norms cannot be converted."
        )
    weight_I, bias_I = affine.weight_I.double(), affine.bias_I.double()
    converted = dict(tensors)
    for name, constant in READERS.items():
        if name in tensors:
            scaled = tensors[name].double() / weight_I
            converted[name] = scaled.float()
            converted[constant] = (converted[constant].double() - scaled @ bias_I).float()
    return converted
