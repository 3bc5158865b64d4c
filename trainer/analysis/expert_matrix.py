"""Analysis of an expert's weights as a linear map, W_n = D diag(c_n). It needs no text.

Shapes: N experts, H hidden width, O output width, V vocabulary; W_n is [H, O].
"""

from __future__ import annotations

import torch
from torch import Tensor

from mxd.trainer.analysis.results import ExpertMap, OutputDimension, SingularDirection, TokenEffect
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import single_texts
from mxd.trainer.layers.metrics import small_matrix
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_fits

NUM_DIRECTIONS = 3
NUM_TOKENS = 6
NUM_DIMENSIONS = 8
SMALL_SCALING = 0.1
"""Threshold of small entries of c_n, relative to the dimension's root mean square over all experts."""
MAX_EXACT_WIDTH = 1024
"""Width of the smaller side up to which the SVD is exact. Above it is randomised (Halko et al., arXiv 0909.4061)."""
SKETCH, ITERATIONS = 32, 8


@torch.no_grad()
def expert_map(language_model: LanguageModel, run: Run, expert: int) -> ExpertMap:
    """Decompose an expert's weight matrix.

    Raises:
        UserError: the run's experts are vectors, as in a transcoder, or the run was trained on another language model.
    """
    check_fits(language_model, run)
    layer = run.layer
    if not isinstance(layer, MxD):
        raise UserError(f"The experts of a {run.config.method} are vectors. Only matrices can be decomposed.")
    shares_R, vectors_RO, stable_rank = _singular_directions(layer, expert)
    largest_scalings, smallest_scalings, small_scaling_share = _output_dimensions(layer, expert)
    return ExpertMap(
        stable_rank=stable_rank,
        directions=_with_tokens(language_model, run.config.layer, shares_R, vectors_RO),
        largest_scalings=largest_scalings,
        smallest_scalings=smallest_scalings,
        small_scaling_share=small_scaling_share,
    )


def _singular_directions(mxd: MxD, expert: int) -> tuple[Tensor, Tensor, float]:
    """Shares, [R], and right singular vectors, [R, O], of the leading directions, and the stable rank."""
    matrix_HO = mxd.expert_matrix(expert).float().cpu()  # as small_matrix; the sketch uses the CPU's generator
    if min(matrix_HO.shape) <= MAX_EXACT_WIDTH:
        values_R, vectors_RO = torch.linalg.svd(small_matrix(mxd, expert), full_matrices=False)[1:]
    else:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            _, values_R, vectors_OR = torch.svd_lowrank(matrix_HO, SKETCH, ITERATIONS)
        vectors_RO = vectors_OR.T
    squares_R = values_R.square()
    squared_norm = matrix_HO.square().sum().clamp_min(torch.finfo(matrix_HO.dtype).tiny)
    leading = slice(min(NUM_DIRECTIONS, int((squares_R > 0).sum())))
    largest = float(squares_R[0])
    return squares_R[leading] / squared_norm, vectors_RO[leading], float(squared_norm) / largest if largest > 0 else 0.0


def _output_dimensions(
    mxd: MxD, expert: int
) -> tuple[tuple[OutputDimension, ...], tuple[OutputDimension, ...], float | None]:
    if not mxd.mixes_outputs:
        return (), (), None
    scaling_O = mxd.scaling_NO[expert]
    typical_O = mxd.scaling_NO.square().mean(dim=0).sqrt().clamp_min(1e-12)
    relative_O = scaling_O.abs() / typical_O
    order_O = relative_O.argsort(descending=True, stable=True)

    def dimensions(chosen_D: Tensor) -> tuple[OutputDimension, ...]:
        rows = zip(chosen_D.tolist(), scaling_O[chosen_D].tolist(), relative_O[chosen_D].tolist(), strict=True)
        return tuple(OutputDimension(*row) for row in rows)

    small_scaling_share = float((relative_O < SMALL_SCALING).float().mean())
    return dimensions(order_O[:NUM_DIMENSIONS]), dimensions(order_O.flip(0)[:NUM_DIMENSIONS]), small_scaling_share


def _with_tokens(
    language_model: LanguageModel, layer: int, shares_R: Tensor, vectors_RO: Tensor
) -> tuple[SingularDirection, ...]:
    """The directions with the tokens that each end promotes, by what the block adds if its MLP writes only that."""
    if not len(shares_R):
        return ()
    ends_RO = torch.cat([vectors_RO, -vectors_RO]).to(language_model.device)
    added_RW = language_model.additions.of_directions(layer, ends_RO)
    logits_RV = language_model.unembed(added_RW)
    top = (logits_RV - logits_RV.mean(dim=1, keepdim=True)).topk(NUM_TOKENS, dim=1)
    texts = single_texts(language_model, set(top.indices.flatten().tolist()))
    ends = [
        tuple(TokenEffect(i, texts[i], change) for i, change in zip(ids, changes, strict=True))
        for ids, changes in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]
    count = len(shares_R)
    return tuple(
        SingularDirection(share, one, other)
        for share, one, other in zip(shares_R.tolist(), ends[:count], ends[count:], strict=True)
    )
