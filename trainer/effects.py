"""Direct effect on the next token: what each expert's contribution alone does to the prediction after a token.

The contribution a_n (c_n * zD) is taken out of the residual stream behind the last block, and final norm and
unembedding are applied to the rest: exact for the norm too, and blind to what later blocks made of the contribution.

Shapes: T tokens, K active, O output width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.errors import UserError
from trainer.language_model import LanguageModel
from trainer.layers.sparse import Routing, SparseLayer
from trainer.routing import check_fits, prompt_ids, single_texts
from trainer.run import Run
from trainer.stand_ins import Mlp

TOKENS_SHOWN = 6


class TokenEffect(NamedTuple):
    """What a contribution does to one token."""

    id: int
    text: str
    change: float
    """log p with the contribution − log p without it, in nats."""


@dataclass(frozen=True)
class ExpertEffect:
    """An expert that is active on the token, and what it does to the prediction of the next one."""

    expert: int
    coefficient: float
    promoted: tuple[TokenEffect, ...]
    """Largest change first."""
    suppressed: tuple[TokenEffect, ...]
    """Most negative change first."""


@torch.no_grad()
def direct_effects(
    language_model: LanguageModel, run: Run, text: str, position: int, k: int | None = None
) -> tuple[ExpertEffect, ...]:
    """Effects of the experts that are active on the token at ``position`` (0 is the start token), strongest first.

    Args:
        k: experts of the token that are let through, the strongest first; by default the run's K.

    Raises:
        TooLongError: the text is longer than the language model takes.
        UserError: there is no such token, or the run was fitted to another language model, or has no such K.
    """
    check_fits(language_model, run)
    ids = prompt_ids(language_model, text)
    if not 0 <= position < len(ids):
        raise UserError(f"The text has tokens 0 to {len(ids) - 1}; there is no token {position}.")
    seen: list[Tensor] = []

    def watch(x_1TI: Tensor, mlp: Mlp) -> Tensor:
        seen.append(x_1TI[0, position : position + 1].float())
        return mlp()

    with language_model.stand_in({run.config.layer: watch}):
        residual_O = language_model.last_residual(torch.tensor([ids]))[0, position]
    contributions_KO, routing = _contributions(run.at_k(k), seen[0])
    residuals_RO = torch.cat([residual_O.unsqueeze(0), residual_O - contributions_KO.to(residual_O.dtype)])
    log_p_RV = language_model.logits_of(residuals_RO).log_softmax(dim=-1)
    return _described(language_model, routing, log_p_RV[0] - log_p_RV[1:])


def _contributions(layer: SparseLayer, x_1I: Tensor) -> tuple[Tensor, Routing]:
    """What each active expert adds to the residual stream on one token, [K, O], in all layers that it writes; and its
    routing."""
    routing = layer.to(x_1I.device).route(x_1I)
    active_K = routing.coefficients_TK[0] > 0
    single = Routing(*(values[0][active_K].unsqueeze(1) for values in routing))
    dense_KM = layer.dense_output(x_1I).expand(len(single.indices_TK), -1)
    return torch.stack(layer.parts(layer.contribution(dense_KM, single))).sum(dim=0), single


def _described(language_model: LanguageModel, routing: Routing, changes_KV: Tensor) -> tuple[ExpertEffect, ...]:
    up, down = (values.topk(TOKENS_SHOWN, dim=1) for values in (changes_KV, -changes_KV))
    texts = single_texts(language_model, {*up.indices.flatten().tolist(), *down.indices.flatten().tolist()})

    def listed(ids: list[int], changes: list[float]) -> tuple[TokenEffect, ...]:
        return tuple(TokenEffect(i, texts[i], change) for i, change in zip(ids, changes, strict=True))

    rows = zip(
        routing.indices_TK[:, 0].tolist(),
        routing.coefficients_TK[:, 0].tolist(),
        up.indices.tolist(),
        up.values.tolist(),
        down.indices.tolist(),
        (-down.values).tolist(),
        strict=True,
    )
    return tuple(ExpertEffect(n, a, listed(i, v), listed(j, w)) for n, a, i, v, j, w in rows)
