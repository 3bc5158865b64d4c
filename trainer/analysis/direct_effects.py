"""Direct effect of each active expert on the next-token distribution.

What the block adds to the residual stream because of the contribution a_n (c_n * zD) is subtracted after the last
block. The final norm and the unembedding are recomputed exactly. Effects through later blocks are not included.

Shapes: T tokens, K active, O output width, W width of the residual stream, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mxd.trainer.analysis.results import ExpertEffect, TokenEffect
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import prompt_ids, single_texts
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_fits

NUM_TOKENS = 6


@torch.no_grad()
def direct_effects(
    language_model: LanguageModel, run: Run, text: str, position: int, k: int | None = None
) -> tuple[ExpertEffect, ...]:
    """Return the direct effects of the experts active on the token at ``position``, largest coefficient first.

    Args:
        position: index of the token. 0 is the start token.
        k: number of active experts per token; by default the run's K.

    Raises:
        TooLongError: the text exceeds the language model's context length.
        UserError: there is no such token, k is too large, the run was trained on another language model, or the
            architecture has no direct effects.
    """
    check_fits(language_model, run)
    ids = prompt_ids(language_model, text, start_token=run.config.text.start_token)
    if not 0 <= position < len(ids):
        raise UserError(f"Unknown token position {position}. The text has tokens 0 to {len(ids) - 1}.")
    layer, sparse_layer, inputs = run.config.layer, run.at_k(k), list[Tensor]()

    def record(x_1TI: Tensor, mlp: Mlp) -> Tensor:
        output_1TO = mlp()
        read_1TI = output_1TO if sparse_layer.reads == "mlp-output" else x_1TI
        inputs.append(read_1TI[0, position : position + 1].float())
        return output_1TO

    with language_model.replace_mlps({layer: record}):
        residual_W = language_model.residual(torch.tensor([ids]))[0, position]
    contributions_KO, routing = _contributions(sparse_layer, inputs[0])
    positions_K = [position] * len(contributions_KO)
    added_KW = language_model.additions.of_vectors(layer, ids, positions_K, contributions_KO)
    passed_KW = added_KW * language_model.additions.passed_on(layer)
    residual_W = residual_W.to(passed_KW)  # not rounded to the language model's dtype
    residuals_RW = torch.cat([residual_W.unsqueeze(0), residual_W - passed_KW])
    log_p_RV = language_model.unembed(residuals_RW).log_softmax(dim=-1)
    return _expert_effects(language_model, routing, log_p_RV[0] - log_p_RV[1:])


def _contributions(sparse_layer: SparseLayer, x_1I: Tensor) -> tuple[Tensor, Routing]:
    """Contributions of the active experts to the MLP's output at one token, [K, O], and their routing."""
    routing = sparse_layer.to(x_1I.device).route(x_1I)
    active_K = routing.coefficients_TK[0] > 0
    single = Routing(*(values[0][active_K].unsqueeze(1) for values in routing))
    dense_KM = sparse_layer.dense_output(x_1I).expand(len(single.indices_TK), -1)
    return sparse_layer.contribution(dense_KM, single), single


def _expert_effects(language_model: LanguageModel, routing: Routing, changes_KV: Tensor) -> tuple[ExpertEffect, ...]:
    up, down = (values.topk(NUM_TOKENS, dim=1) for values in (changes_KV, -changes_KV))
    texts = single_texts(language_model, {*up.indices.flatten().tolist(), *down.indices.flatten().tolist()})

    def token_effects(ids: list[int], changes: list[float]) -> tuple[TokenEffect, ...]:
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
    return tuple(ExpertEffect(n, a, token_effects(i, v), token_effects(j, w)) for n, a, i, v, j, w in rows)
