"""Switching experts off: what a circuit predicts of it, and what the language model does.

Predicted: the sum of what the experts add to the target along all paths, in the frozen graph where they follow nothing
and all others follow their inputs. Exact there: switched off, nothing else changes but what is linear in them.

Measured: the language model runs again without their contributions on these tokens; attention, normalisation, choice of
experts and untouched MLPs are free to change. Later edited experts lose what they have then, as in steering.

Shapes: B rows, T tokens, K active, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.circuits.config import Errors, TargetConfig
from trainer.circuits.graph import Switch
from trainer.circuits.passes import layer_of, run_frozen
from trainer.circuits.tracing import rows_for, target_of, target_seed, traced_ids
from trainer.errors import UserError
from trainer.language_model import LanguageModel
from trainer.layers.sparse import Routing, SparseLayer
from trainer.progress import Progress, silent
from trainer.run import Run
from trainer.stand_ins import Mlp


class Effect(NamedTuple):
    """What comes of switching a group of experts off, for the target's logit less the mean."""

    predicted: float
    measured: float
    probability: float
    """Of the target, without them."""


def switch_off(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: TargetConfig,
    groups: Sequence[Sequence[Switch]],
    progress: Progress = silent,
) -> tuple[Effect, ...]:
    """Switch groups of experts off, each group by itself and together, as predicted and in the language model.

    Args:
        runs: those of the circuit.
        config: that of the circuit.
        groups: experts on tokens.
        progress: told how many groups are done; what it raises ends the work.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``trace``; or an expert is of no run of these, or is not active on its token.
    """
    chosen = [runs] if isinstance(runs, Run) else list(runs)
    ids = traced_ids(language_model, chosen, config)
    _check(chosen, groups, len(ids))
    effects: list[Effect] = []
    at_a_time = rows_for(len(ids))
    unchanged = _measured(language_model, chosen, ids, config.errors, [()])[0]
    token = target_of(unchanged, config.target)
    for first in range(0, len(groups), at_a_time):
        progress(first, len(groups), "")
        some = groups[first : first + at_a_time]
        predicted = _predicted(language_model, chosen, ids, config.errors, some, token)
        logits_BV = _measured(language_model, chosen, ids, config.errors, some)
        changes = (_above_mean(logits_BV, token) - _above_mean(unchanged.unsqueeze(0), token)).tolist()
        probabilities = logits_BV.softmax(-1)[:, token].tolist()
        effects += [Effect(*values) for values in zip(predicted, changes, probabilities, strict=True)]
    return tuple(effects)


def _check(runs: Sequence[Run], groups: Sequence[Sequence[Switch]], tokens: int) -> None:
    names = [run.name for run in runs]
    for switch in (switch for group in groups for switch in group):
        if switch.run not in names:
            raise UserError(f"The run {switch.run} is none of the circuit's; name {', '.join(names)}.")
        if not 0 <= switch.position < tokens:
            raise UserError(f"The circuit has tokens 0 to {tokens - 1}; there is no token {switch.position}.")


def _above_mean(logits_BV: Tensor, token: int) -> Tensor:
    return logits_BV[:, token] - logits_BV.mean(-1)


def _chosen(
    layers: Mapping[str, int], groups: Sequence[Sequence[Switch]], tokens: int, layer: int, indices_PK: Tensor
) -> Tensor:
    """Which coefficients of a layer are switched off, [B x T, K]: each group in a row of its own."""
    off_PK = torch.zeros_like(indices_PK, dtype=torch.bool)
    for row, group in enumerate(groups):
        for switch in group:
            if layers[switch.run] == layer:
                place = row * tokens + switch.position
                off_PK[place] |= indices_PK[place] == switch.expert
    return off_PK


def _predicted(
    language_model: LanguageModel,
    runs: Sequence[Run],
    ids: Sequence[int],
    errors: Errors,
    groups: Sequence[Sequence[Switch]],
    token: int,
) -> list[float]:
    chosen = partial(_chosen, {run.name: run.config.layer for run in runs}, groups, len(ids))
    live = run_frozen(language_model, runs, torch.tensor([list(ids)] * len(groups)), errors, chosen)
    parts = live.parts([live.logits_BV], [target_seed(live.logits_BV, token)])
    lost_B, found_B = torch.zeros(len(groups)), torch.zeros(len(groups))
    for layer, site in live.sites.items():
        off_PK = chosen(layer, site.indices_PK) & (site.coefficients_PK > 0)
        off_BTK = off_PK.reshape(parts.experts_BTK[layer].shape)
        lost_B += (parts.experts_BTK[layer] * off_BTK).sum((1, 2)).cpu()
        found_B += off_BTK.sum((1, 2)).cpu()
    for group, found in zip(groups, found_B.tolist(), strict=True):
        if found != len(set(group)):
            named = ", ".join(f"{switch.expert} on token {switch.position}" for switch in group)
            raise UserError(f"Not all of these experts are active: {named}; choose some of the circuit's.")
    return [-value for value in lost_B.tolist()]


@torch.no_grad()
def _measured(
    language_model: LanguageModel,
    runs: Sequence[Run],
    ids: Sequence[int],
    errors: Errors,
    groups: Sequence[Sequence[Switch]],
) -> Tensor:
    """Logits [B, V] behind the last token, each row without its group."""
    chosen = partial(_chosen, {run.name: run.config.layer for run in runs}, groups, len(ids))
    stand_ins = {
        run.config.layer: partial(_without, layer_of(language_model, run), partial(chosen, run.config.layer), errors)
        for run in runs
    }
    with language_model.stand_in(stand_ins):
        residual_BTW = language_model.last_residual(torch.tensor([list(ids)] * len(groups)))
    return language_model.logits_of(residual_BTW[:, -1])


def _without(layer: SparseLayer, chosen: Callable[[Tensor], Tensor], errors: Errors, x_BTI: Tensor, mlp: Mlp) -> Tensor:
    x_PI = x_BTI.reshape(-1, x_BTI.shape[-1]).float()
    dense_PM, routing = layer.dense_output(x_PI), layer.route(x_PI)
    lost = Routing(routing.coefficients_TK * chosen(routing.indices_TK), routing.indices_TK)
    whole = mlp() if errors == "kept" else layer.decode(dense_PM, routing).reshape(*x_BTI.shape[:-1], -1)
    return (whole.float() - layer.contribution(dense_PM, lost).reshape(whole.shape)).to(x_BTI.dtype)
