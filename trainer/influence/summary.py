"""From measures on single contexts to figures of an expert, each context weighted by the tokens that it stands for.

Shapes: M contexts of one expert, O output width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.influence.arms import Measured
from trainer.language_model import LanguageModel

TOKENS_KEPT = 12


@dataclass(frozen=True)
class Influence:
    """What an expert does and how much it matters; losses and divergences in nats, means over its active tokens."""

    expert: int
    contexts: int
    """How many it was measured on."""
    added_loss: float | None
    """Of the next token, with the expert alone switched off; None where no context has a next token."""
    kl_off: float
    kl_up: float
    """KL of the next token's distribution with the coefficient raised by the expert's 99th percentile."""
    kl_other: float
    """The same with a random expert of the same usage raised by its own, on the same tokens."""
    kl_direction: float
    """The same with a random direction as long as what was added for ``kl_up``."""
    other: int
    """The random expert of the same usage."""
    output_share: float
    """Of the summed norms of what all active experts add."""
    input_dependence: float
    """Share of the squared norm of its contributions that lies outside their mean direction: 0 for one that writes
    the same direction whatever the input, as a transcoder's feature does."""
    promoted: list[list[float]]
    """[[token id, change of log p], …] by its contribution, read by final norm and unembedding; largest first."""
    suppressed: list[list[float]]


def summarise(
    language_model: LanguageModel, expert: int, other: int, measured: Measured, weight_M: Tensor
) -> Influence:
    """Average the measures of one expert."""
    weight_M = (weight_M / weight_M.sum()).to(measured.share)

    def mean(values_M: Tensor) -> float:
        return float((values_M * weight_M).sum())

    promoted, suppressed = _tokens(language_model, measured, weight_M)
    return Influence(
        expert=expert,
        contexts=len(weight_M),
        added_loss=_mean_of_known(measured.added_loss, weight_M),
        kl_off=mean(measured.kl_off),
        kl_up=mean(measured.kl_up),
        kl_other=mean(measured.kl_other),
        kl_direction=mean(measured.kl_direction),
        other=other,
        output_share=mean(measured.share),
        input_dependence=input_dependence(measured.contribution, weight_M),
        promoted=promoted,
        suppressed=suppressed,
    )


def input_dependence(contribution_MO: Tensor, weight_M: Tensor) -> float:
    """Share of the squared norm outside the mean direction; 0 where nothing is added at all."""
    whole = float((contribution_MO.square().sum(dim=1) * weight_M).sum())
    mean_O = (contribution_MO * weight_M.unsqueeze(1)).sum(dim=0)
    length = float(mean_O.norm())
    if whole <= 0 or length <= 0:
        return float(whole > 0)
    along = float(((contribution_MO @ (mean_O / length)).square() * weight_M).sum())
    return min(1.0, max(0.0, 1 - along / whole))


def _mean_of_known(values_M: Tensor, weight_M: Tensor) -> float | None:
    known_M = ~values_M.isnan()
    if not bool(known_M.any()):
        return None
    return float((values_M[known_M] * weight_M[known_M]).sum() / weight_M[known_M].sum())


def _tokens(
    language_model: LanguageModel, measured: Measured, weight_M: Tensor
) -> tuple[list[list[float]], list[list[float]]]:
    """Tokens whose log p the contribution raises and lowers most, on average over contexts."""
    residuals_RW = torch.cat([measured.residual, measured.residual - measured.contribution]).to(language_model.dtype)
    with_MV, without_MV = language_model.logits_of(residuals_RW).log_softmax(dim=-1).chunk(2)
    change_V = ((with_MV - without_MV) * weight_M.unsqueeze(1)).sum(dim=0)
    return _listed(change_V, 1.0), _listed(change_V, -1.0)


def _listed(change_V: Tensor, sign: float) -> list[list[float]]:
    top = (change_V * sign).topk(min(TOKENS_KEPT, len(change_V)))
    return [[token, sign * value] for token, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)]
