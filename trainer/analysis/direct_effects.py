"""Direct effect on the next-token distribution: of all experts that are active on a token, or of one on its examples.

What the block adds to the residual stream because of the contribution a_n (c_n * zD) is subtracted after the last
block. The final norm and the unembedding are recomputed exactly. Effects through later blocks are not included.

Shapes: T tokens, K active, O output width, W width of the residual stream, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mxd.trainer.analysis.results import ExpertEffect, ExpertWrites, TokenEffect
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
    layer, sparse_layer = run.config.layer, run.at_k(k)
    x_1I, residual_W = _read_token(language_model, layer, sparse_layer, ids, position)
    contributions_KO, routing = _contributions(sparse_layer, x_1I)
    added_KW = language_model.additions.of_vectors(layer, ids, [position] * len(contributions_KO), contributions_KO)
    passed_KW = added_KW * language_model.additions.passed_on(layer)
    residual_W = residual_W.to(passed_KW)  # not rounded to the language model's dtype
    residuals_RW = torch.cat([residual_W.unsqueeze(0), residual_W - passed_KW])
    log_p_RV = language_model.unembed(residuals_RW).log_softmax(dim=-1)
    return _expert_effects(language_model, routing, log_p_RV[0] - log_p_RV[1:])


@torch.no_grad()
def expert_writes(
    language_model: LanguageModel, run: Run, expert: int, examples: Sequence[tuple[Sequence[int], int]]
) -> ExpertWrites:
    """Return what one expert writes: its direct effect, averaged over examples.

    Args:
        examples: token ids of a sequence and the position of a token on which the expert is active. Examples on which
            it is inactive, because the layer was trained further since, are left out.

    Raises:
        UserError: the run was trained on another language model, or the architecture has no direct effects.
    """
    check_fits(language_model, run)
    layer, passed_on = run.config.layer, language_model.additions.passed_on(run.config.layer)
    with_W, without_W = list[Tensor](), list[Tensor]()
    for sequence, position in examples:
        ids = list(sequence[: position + 1])
        x_1I, residual_W = _read_token(language_model, layer, run.layer, ids, position)
        contributions_KO, routing = _contributions(run.layer, x_1I)
        row_K = routing.indices_TK[:, 0] == expert
        if bool(row_K.any()):
            added_1W = language_model.additions.of_vectors(layer, ids, [position], contributions_KO[row_K])
            with_W.append(residual_W.to(added_1W))
            without_W.append(residual_W.to(added_1W) - added_1W[0] * passed_on)
    if not with_W:
        return ExpertWrites(expert, 0, (), ())
    with_MV, without_MV = language_model.unembed(torch.stack(with_W + without_W)).log_softmax(dim=-1).chunk(2)
    (promoted,), (suppressed,) = _strongest(language_model, (with_MV - without_MV).mean(dim=0, keepdim=True))
    return ExpertWrites(expert, len(with_W), promoted, suppressed)


def _read_token(
    language_model: LanguageModel, layer: int, sparse_layer: SparseLayer, ids: Sequence[int], position: int
) -> tuple[Tensor, Tensor]:
    """Input of the sparse layer at a token, [1, I] in float32, and the residual stream after the last block, [W]."""
    inputs = list[Tensor]()

    def record(x_1TI: Tensor, mlp: Mlp) -> Tensor:
        output_1TO = mlp()
        read_1TI = output_1TO if sparse_layer.reads == "mlp-output" else x_1TI
        inputs.append(read_1TI[0, position : position + 1].float())
        return output_1TO

    with language_model.replace_mlps({layer: record}):
        residual_W = language_model.residual(torch.tensor([list(ids)]))[0, position]
    return inputs[0], residual_W


def _contributions(sparse_layer: SparseLayer, x_1I: Tensor) -> tuple[Tensor, Routing]:
    """Contributions of the active experts to the MLP's output at one token, [K, O], and their routing."""
    routing = sparse_layer.to(x_1I.device).route(x_1I)
    active_K = routing.coefficients_TK[0] > 0
    single = Routing(*(values[0][active_K].unsqueeze(1) for values in routing))
    dense_KM = sparse_layer.dense_output(x_1I).expand(len(single.indices_TK), -1)
    return sparse_layer.contribution(dense_KM, single), single


TokenEffects = tuple[TokenEffect, ...]


def _strongest(language_model: LanguageModel, changes_KV: Tensor) -> tuple[list[TokenEffects], list[TokenEffects]]:
    """The largest rises and falls of log p of each row."""
    up, down = (values.topk(NUM_TOKENS, dim=1) for values in (changes_KV, -changes_KV))
    texts = single_texts(language_model, {*up.indices.flatten().tolist(), *down.indices.flatten().tolist()})

    def named(indices_KE: Tensor, changes_KE: Tensor) -> list[TokenEffects]:
        rows = zip(indices_KE.tolist(), changes_KE.tolist(), strict=True)
        return [tuple(TokenEffect(i, texts[i], value) for i, value in zip(*row, strict=True)) for row in rows]

    return named(up.indices, up.values), named(down.indices, -down.values)


def _expert_effects(language_model: LanguageModel, routing: Routing, changes_KV: Tensor) -> tuple[ExpertEffect, ...]:
    promoted, suppressed = _strongest(language_model, changes_KV)
    active = routing.indices_TK[:, 0].tolist(), routing.coefficients_TK[:, 0].tolist()
    return tuple(ExpertEffect(*values) for values in zip(*active, promoted, suppressed, strict=True))
