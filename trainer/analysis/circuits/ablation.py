"""Ablation of experts: the effect that a circuit predicts, and the effect measured in the language model.

Predicted: the sum of the experts' contributions to the target along all paths in the linearised graph. The ablated
experts' coefficients are frozen, and all others are live. In that graph the prediction is exact.

Measured: the language model runs again without the experts' contributions on these tokens. Attention, normalisation,
active experts and original MLPs may change. A later ablated expert loses its changed contribution, as in steering.

Shapes: T tokens, K active, V vocabulary, B rows of the measurement, P = B * T tokens of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from mxd.trainer.analysis.circuits.forward_pass import LayerSite, load_sparse_layer, run_linearized
from mxd.trainer.analysis.circuits.graph import AblationEffect, ExpertAtToken
from mxd.trainer.analysis.circuits.tracing import target_seed, target_token, traced_ids
from mxd.trainer.config.analysis import Errors, TargetConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

MAX_BATCH_TOKENS = 1024
"""Maximum number of tokens in a batch of measurements, unless one text has more."""
MAX_ROWS = 16


def ablate_experts(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: TargetConfig,
    groups: Sequence[Sequence[ExpertAtToken]],
    callbacks: Callbacks = NO_CALLBACKS,
) -> tuple[AblationEffect, ...]:
    """Predict and measure the effects of ablating groups of experts. Each group is ablated jointly, on its own.

    Args:
        runs: runs of the circuit.
        config: prompt and target of the circuit.
        groups: groups of experts at tokens.
        callbacks: progress in groups, and cancellation.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``trace``; or an expert is not in these runs, or is not active on its token.
        CancelledError: the task was cancelled.
    """
    circuit_runs = [runs] if isinstance(runs, Run) else list(runs)
    ids = traced_ids(language_model, circuit_runs, config)
    _check_experts(circuit_runs, groups, len(ids))
    effects: list[AblationEffect] = []
    batch = max(1, min(MAX_ROWS, MAX_BATCH_TOKENS // len(ids)))
    original_V = _measured(language_model, circuit_runs, ids, config.errors, [()])[0]
    token = target_token(original_V, config.target)
    predicted = _predicted(language_model, circuit_runs, ids, config.errors, groups, token)
    for first in range(0, len(groups), batch):
        callbacks.check_cancelled()
        callbacks.on_progress(first, len(groups), "")
        part = groups[first : first + batch]
        logits_BV = _measured(language_model, circuit_runs, ids, config.errors, part)
        changes = (_above_mean(logits_BV, token) - _above_mean(original_V.unsqueeze(0), token)).tolist()
        probabilities = logits_BV.softmax(-1)[:, token].tolist()
        effects += [AblationEffect(*values) for values in zip(predicted[first:], changes, probabilities, strict=False)]
    return tuple(effects)


def _check_experts(runs: Sequence[Run], groups: Sequence[Sequence[ExpertAtToken]], tokens: int) -> None:
    names = [run.name for run in runs]
    for expert in (expert for group in groups for expert in group):
        if expert.run not in names:
            raise UserError(f"Unknown run {expert.run!r}. The circuit has: {', '.join(names)}.")
        if not 0 <= expert.position < tokens:
            raise UserError(f"Unknown token position {expert.position}. The circuit has tokens 0 to {tokens - 1}.")


def _above_mean(logits_BV: Tensor, token: int) -> Tensor:
    return logits_BV[:, token] - logits_BV.mean(-1)


def _ablation_mask(
    layers: Mapping[str, int], groups: Sequence[Sequence[ExpertAtToken]], tokens: int, layer: int, indices_PK: Tensor
) -> Tensor:
    """Mask of a layer's ablated coefficients, [P, K]. Each row of the batch ablates one group."""
    ablated_PK = torch.zeros_like(indices_PK, dtype=torch.bool)
    for row, group in enumerate(groups):
        for expert in group:
            if layers[expert.run] == layer:
                index = row * tokens + expert.position
                ablated_PK[index] |= indices_PK[index] == expert.expert
    return ablated_PK


def _predicted(
    language_model: LanguageModel,
    runs: Sequence[Run],
    ids: Sequence[int],
    errors: Errors,
    groups: Sequence[Sequence[ExpertAtToken]],
    token: int,
) -> list[float]:
    forward_pass = run_linearized(language_model, runs, ids, errors, live=True)
    layers = {run.config.layer: run.name for run in runs}
    seed_1V = target_seed(forward_pass.logits_1V, token)
    nothing_frozen = forward_pass.contributions([forward_pass.logits_1V], [seed_1V.unsqueeze(0)])
    changes = []
    for group in groups:
        masks = {layer: _group_mask(site, layers[layer], group) for layer, site in forward_pass.sites.items()}
        if sum(int(mask_TK.sum()) for mask_TK in masks.values()) != len(set(group)):
            named = ", ".join(f"{expert.expert} on token {expert.position}" for expert in group)
            raise UserError(f"Not all of these experts are active: {named}. Choose experts of the circuit.")
        contributions = nothing_frozen
        if len(group) > 1:  # no path leads from an expert back to itself
            forward_pass.frozen.update(masks)
            contributions = forward_pass.contributions([forward_pass.logits_1V], [seed_1V.unsqueeze(0)])
        products = (contributions.experts_RTK[layer][0][mask_TK].sum() for layer, mask_TK in masks.items())
        changes.append(-sum(float(product) for product in products))
    return changes


def _group_mask(site: LayerSite, run: str, group: Sequence[ExpertAtToken]) -> Tensor:
    """Mask of the coefficients of a layer that a group ablates, [T, K]."""
    ablated_TK = torch.zeros_like(site.indices_TK, dtype=torch.bool)
    for expert in group:
        if expert.run == run:
            ablated_TK[expert.position] |= site.indices_TK[expert.position] == expert.expert
    return ablated_TK & (site.coefficients_TK.detach() > 0)


@torch.no_grad()
def _measured(
    language_model: LanguageModel,
    runs: Sequence[Run],
    ids: Sequence[int],
    errors: Errors,
    groups: Sequence[Sequence[ExpertAtToken]],
) -> Tensor:
    """Logits after the last token with each row's group ablated, [B, V]."""
    mask = partial(_ablation_mask, {run.name: run.config.layer for run in runs}, groups, len(ids))
    replacements = {
        run.config.layer: partial(
            _ablated_mlp, load_sparse_layer(language_model, run), partial(mask, run.config.layer), errors
        )
        for run in runs
    }
    with language_model.replace_mlps(replacements):
        residual_BTW = language_model.residual(torch.tensor([list(ids)] * len(groups)))
    return language_model.unembed(residual_BTW[:, -1])


def _ablated_mlp(
    sparse_layer: SparseLayer, mask: Callable[[Tensor], Tensor], errors: Errors, x_BTI: Tensor, mlp: Mlp
) -> Tensor:
    x_PI = x_BTI.reshape(-1, x_BTI.shape[-1]).float()
    dense_PM, routing = sparse_layer.dense_output(x_PI), sparse_layer.route(x_PI)
    ablated = Routing(routing.coefficients_TK * mask(routing.indices_TK), routing.indices_TK)
    output = mlp() if errors == "kept" else sparse_layer.decode(dense_PM, routing).reshape(*x_BTI.shape[:-1], -1)
    return (output.float() - sparse_layer.contribution(dense_PM, ablated).reshape(output.shape)).to(x_BTI.dtype)
