"""One expert as the linear map that it is: W_n = D diag(c_n), from its weights alone, whatever text comes.

Shapes: N experts, H hidden width, O output width, V vocabulary; W_n is [H, O].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.effects import TokenEffect
from trainer.errors import UserError
from trainer.expert_ranks import small_matrix
from trainer.language_model import LanguageModel
from trainer.layers.mxd import MxD
from trainer.routing import check_fits, single_texts
from trainer.run import Run

DIRECTIONS = 3
TOKENS_SHOWN = 6
DIMENSIONS_SHOWN = 8
CLOSED = 0.1
"""In units of the dimension's root mean square over all experts: an entry of c_n below it lets little through."""
WIDEST = 1024
"""From here on the largest singular values are found by a randomised method (Halko et al., arXiv 0909.4061)."""
SKETCH, ITERATIONS = 32, 8


class Dimension(NamedTuple):
    """An entry of c_n."""

    dimension: int
    """Of the output, from 0."""
    scaling: float
    relative: float
    """|c_n| there, in units of the root mean square over all experts of that dimension."""


@dataclass(frozen=True)
class Direction:
    """A right singular vector of W_n: something that the expert writes, more or less of it, with either sign."""

    share: float
    """Of the squared singular values: how much of what the expert can write lies along it."""
    one_end: tuple[TokenEffect, ...]
    """Tokens for which final norm and unembedding give the direction its largest logits, above the mean over all."""
    other_end: tuple[TokenEffect, ...]
    """The same for its opposite."""


@dataclass(frozen=True)
class ExpertMap:
    """What an expert can write."""

    stable_rank: float
    """‖W‖²_F / ‖W‖²₂: 1 for a map that writes one direction."""
    directions: tuple[Direction, ...]
    """The leading singular directions."""
    opened: tuple[Dimension, ...]
    """Output dimensions that c_n scales most; none for experts that are not scaled by output."""
    closed: tuple[Dimension, ...]
    """Those that it scales least."""
    closed_share: float | None
    """Of all output dimensions, with less than a tenth of what experts usually have there."""


@torch.no_grad()
def expert_map(language_model: LanguageModel, run: Run, expert: int) -> ExpertMap:
    """Take an expert apart.

    Raises:
        UserError: it writes to several layers, or its method's experts are single directions.
    """
    check_fits(language_model, run)
    layer = run.layer
    if not isinstance(layer, MxD) or layer.span > 1:
        raise UserError(f"The experts of a {run.config.method} are not taken apart; this is for maps of one layer.")
    shares_R, vectors_RO, stable_rank = _singular(layer, expert)
    opened, closed, closed_share = _dimensions(layer, expert)
    return ExpertMap(
        stable_rank=stable_rank,
        directions=_directions(language_model, shares_R, vectors_RO),
        opened=opened,
        closed=closed,
        closed_share=closed_share,
    )


def _singular(layer: MxD, expert: int) -> tuple[Tensor, Tensor, float]:
    """Shares and right singular vectors of the leading directions, and the stable rank."""
    matrix_HO = layer.expert_matrix(expert).float()
    if min(matrix_HO.shape) <= WIDEST:
        values_R, vectors_RO = torch.linalg.svd(small_matrix(layer, expert).float(), full_matrices=False)[1:]
    else:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            _, values_R, vectors_OR = torch.svd_lowrank(matrix_HO, SKETCH, ITERATIONS)
        vectors_RO = vectors_OR.T
    squares_R = values_R.square()
    whole = matrix_HO.square().sum().clamp_min(torch.finfo(matrix_HO.dtype).tiny)
    kept = slice(min(DIRECTIONS, int((squares_R > 0).sum())))
    largest = float(squares_R[0])
    return squares_R[kept] / whole, vectors_RO[kept], float(whole) / largest if largest > 0 else 0.0


def _dimensions(layer: MxD, expert: int) -> tuple[tuple[Dimension, ...], tuple[Dimension, ...], float | None]:
    if layer.scaling_NO.shape[1] != layer.config.output_width:
        return (), (), None
    scaling_O = layer.scaling_NO[expert]
    usual_O = layer.scaling_NO.square().mean(dim=0).sqrt().clamp_min(1e-12)
    relative_O = scaling_O.abs() / usual_O
    order_O = relative_O.argsort(descending=True, stable=True)

    def listed(chosen_D: Tensor) -> tuple[Dimension, ...]:
        rows = zip(chosen_D.tolist(), scaling_O[chosen_D].tolist(), relative_O[chosen_D].tolist(), strict=True)
        return tuple(Dimension(*row) for row in rows)

    closed_share = float((relative_O < CLOSED).float().mean())
    return listed(order_O[:DIMENSIONS_SHOWN]), listed(order_O.flip(0)[:DIMENSIONS_SHOWN]), closed_share


def _directions(language_model: LanguageModel, shares_R: Tensor, vectors_RO: Tensor) -> tuple[Direction, ...]:
    if not len(shares_R):
        return ()
    residuals_RO = torch.cat([vectors_RO, -vectors_RO]).to(language_model.device, language_model.dtype)
    logits_RV = language_model.logits_of(residuals_RO)
    top = (logits_RV - logits_RV.mean(dim=1, keepdim=True)).topk(TOKENS_SHOWN, dim=1)
    texts = single_texts(language_model, set(top.indices.flatten().tolist()))
    ends = [
        tuple(TokenEffect(i, texts[i], change) for i, change in zip(ids, changes, strict=True))
        for ids, changes in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]
    count = len(shares_R)
    return tuple(
        Direction(share, one, other)
        for share, one, other in zip(shares_R.tolist(), ends[:count], ends[count:], strict=True)
    )
