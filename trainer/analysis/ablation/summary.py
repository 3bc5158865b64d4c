"""Averages of an expert's measured effects, with each example weighted by the active tokens that it represents.

Shapes: M examples of one expert, O output width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sqlalchemy import insert, update
from sqlalchemy.orm import Session
from torch import Tensor

from mxd.trainer.analysis.ablation.interventions import InterventionEffects
from mxd.trainer.config import AblationConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import delete_ablations
from mxd.trainer.storage.database.tables import AblationRecord, ExpertRecord, MeasurementRecord

NUM_TOKENS = 12


@dataclass(frozen=True)
class ExpertAblation:
    """Effects of an expert, averaged over its active tokens. Losses and KL divergences are in nats per token."""

    expert: int
    examples: int
    """Number of examples measured."""
    loss_increase: float | None
    """Increase of the next token's loss when only this expert is ablated; None if no example has a next token."""
    kl_ablated: float
    """KL divergence of the next-token distribution when only this expert is ablated."""
    kl_amplified: float
    """KL divergence when the expert's coefficient is raised by its 99th percentile."""
    kl_random_expert: float
    """KL divergence when a random expert of similar density is raised by its own, on the same tokens."""
    kl_random_direction: float
    """KL divergence when a random direction with the norm of the amplification is added, on the same tokens."""
    random_expert: int
    """Random expert of similar density."""
    output_share: float
    """Share of the summed norms of all active experts' contributions."""
    input_dependence: float
    """Share of the squared norm of the expert's contributions outside their mean direction. 0 for a transcoder feature,
    which always adds the same direction."""
    promoted: list[list[float]]
    """[token id, mean change of log p] of the tokens that the contribution promotes most, by the logit lens."""
    suppressed: list[list[float]]
    """[token id, mean change of log p] of the tokens that the contribution suppresses most."""


def summarise(
    language_model: LanguageModel, expert: int, random_expert: int, effects: InterventionEffects, weight_M: Tensor
) -> ExpertAblation:
    """Average the effects of one expert over its examples."""
    weight_M = (weight_M / weight_M.sum()).to(effects.share)

    def mean(values_M: Tensor) -> float:
        return float((values_M * weight_M).sum())

    promoted, suppressed = _promoted_and_suppressed(language_model, effects, weight_M)
    return ExpertAblation(
        expert=expert,
        examples=len(weight_M),
        loss_increase=_mean_without_nan(effects.loss_increase, weight_M),
        kl_ablated=mean(effects.kl_ablated),
        kl_amplified=mean(effects.kl_amplified),
        kl_random_expert=mean(effects.kl_random_expert),
        kl_random_direction=mean(effects.kl_random_direction),
        random_expert=random_expert,
        output_share=mean(effects.share),
        input_dependence=input_dependence(effects.contribution, weight_M),
        promoted=promoted,
        suppressed=suppressed,
    )


def input_dependence(contribution_MO: Tensor, weight_M: Tensor) -> float:
    """Share of the contributions' squared norm outside their mean direction; 0 if all are zero."""
    whole = float((contribution_MO.square().sum(dim=1) * weight_M).sum())
    mean_O = (contribution_MO * weight_M.unsqueeze(1)).sum(dim=0)
    length = float(mean_O.norm())
    if whole <= 0 or length <= 0:
        return float(whole > 0)
    along = float(((contribution_MO @ (mean_O / length)).square() * weight_M).sum())
    return min(1.0, max(0.0, 1 - along / whole))


def _mean_without_nan(values_M: Tensor, weight_M: Tensor) -> float | None:
    valid_M = ~values_M.isnan()
    if not bool(valid_M.any()):
        return None
    return float((values_M[valid_M] * weight_M[valid_M]).sum() / weight_M[valid_M].sum())


def _promoted_and_suppressed(
    language_model: LanguageModel, effects: InterventionEffects, weight_M: Tensor
) -> tuple[list[list[float]], list[list[float]]]:
    """Tokens whose log p the contribution raises and lowers most, on average. None without direct effects."""
    if bool(effects.added.isnan().any()):
        return [], []
    residuals_RW = torch.cat([effects.residual, effects.residual - effects.added])
    with_MV, without_MV = language_model.unembed(residuals_RW).log_softmax(dim=-1).chunk(2)
    change_V = ((with_MV - without_MV) * weight_M.to(with_MV).unsqueeze(1)).sum(dim=0)
    return _strongest(change_V, 1.0), _strongest(change_V, -1.0)


def _strongest(change_V: Tensor, sign: float) -> list[list[float]]:
    top = (change_V * sign).topk(min(NUM_TOKENS, len(change_V)))
    return [[token, sign * value] for token, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)]


EXPERT_COLUMNS = ("loss_increase", "kl_amplified", "output_share", "input_dependence")
"""Effects that are also stored with the experts, because the expert table can be sorted by them."""


def write_ablations(session: Session, run_id: int, ablations: Sequence[dict[str, Any]], config: AblationConfig) -> None:
    """Replace a run's stored ablations, or those of the chosen experts, in the caller's transaction.

    Args:
        ablations: columns of ``AblationRecord`` except ``run_id``. Every expert must be in the database.
        config: settings of the measurement.
    """
    delete_ablations(session, run_id, [values["expert"] for values in ablations] if config.experts else None)
    earlier = session.get(MeasurementRecord, (run_id, "ablate"))
    settings = config.model_dump(mode="json")
    if config.experts and earlier is not None:  # the rows of other experts stay, so the settings name these, too
        before = earlier.settings.get("experts")
        settings["experts"] = sorted({*before, *config.experts}) if before else []
    session.merge(MeasurementRecord(run_id=run_id, command="ablate", settings=settings))
    rows = [{"run_id": run_id, **values} for values in ablations]
    if rows:
        session.execute(insert(AblationRecord), rows)
        session.execute(
            update(ExpertRecord),
            [{name: row[name] or 0.0 for name in ("run_id", "expert", *EXPERT_COLUMNS)} for row in rows],
        )
