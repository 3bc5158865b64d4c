"""The price of edits: what they change where nothing should change.

The same edits are made on every token of unrelated texts. There the KL divergence from the original model and the loss
are measured. The ability test has prompts of facts, arithmetic and grammar, each with a right and a wrong continuation.
An item is solved if the right one is more probable. The same edits of random experts are the baseline.

Shapes: G groups of edits, one row each; S read positions, V vocabulary, P tokens of all rows.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.analysis.effects import (
    Change,
    Forward,
    Layers,
    Reading,
    changed_forward,
    edited_mlps,
    layers_of,
    read_target,
)
from mxd.trainer.analysis.results import Ability, AbilityKind, EditPrice, PriceOnText
from mxd.trainer.config.analysis import UNRELATED, ContinuationTarget
from mxd.trainer.config.steering import Edit
from mxd.trainer.errors import UserError
from mxd.trainer.inference.edits import edit_routing
from mxd.trainer.inference.routing import text_ids
from mxd.trainer.inference.steering import edit_plans
from mxd.trainer.inference.units import Units, all_units
from mxd.trainer.language_model.mlp_hooks import LayerPass
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks, Steps, completed

RANDOM_GROUPS = 2
"""Random groups with which each group of edits is compared."""
UNRELATED_TOKENS = 64
"""Most tokens of each unrelated text that are read."""
MAX_BATCH_TOKENS = 1024


class AbilityItem(NamedTuple):
    kind: AbilityKind
    prompt: str
    right: str
    wrong: str


@cache
def ability_items() -> tuple[AbilityItem, ...]:
    """The 200 items of the ability test."""
    text = files("mxd.trainer").joinpath("data", "ability.jsonl").read_text("utf-8")
    return tuple(AbilityItem(**json.loads(line)) for line in text.split("\n") if line)


@dataclass(frozen=True, eq=False)
class EditedPasses:
    """Forward passes of texts with groups of edits, on top of the MLPs."""

    language_model: LanguageModel
    runs: Sequence[Run]
    layers: Layers
    units: Units
    """Units by run, from ``all_units``."""
    callbacks: Callbacks

    def prices(self, texts: Sequence[Reading], groups: Sequence[Sequence[Edit]]) -> list[float]:
        """KL divergence of each group on texts, in nats per token."""
        totals_G, tokens = torch.zeros(len(groups)), 0
        for reading in texts:
            (original,) = self.forwards(reading, [()])
            original_SV = original.logits_BSV[0].log_softmax(-1)
            tokens += len(original_SV)
            kl = [_divergence(original_SV, each.logits_BSV).sum(1) for each in self.forwards(reading, groups)]
            totals_G += torch.cat(kl)
        return (totals_G / tokens).clamp_min(0).tolist()

    def random_groups(self, groups: Sequence[Sequence[Edit]]) -> list[list[Edit]]:
        """``RANDOM_GROUPS`` copies of each group with random live experts of the same runs in place of its own."""
        alive = {run.name: units_of(run, self.units).nonzero()[:, 0].tolist() for run in self.runs}
        return [
            [edit.model_copy(update={"expert": generator.choice(alive[edit.run or ""])}) for edit in group]
            for generator in [random.Random(0)]
            for group in groups
            for _ in range(RANDOM_GROUPS)
        ]

    def forwards(self, reading: Reading, groups: Sequence[Sequence[Edit]]) -> Iterator[Forward]:
        """Passes over a text, with one row per group of edits."""
        rows = max(1, MAX_BATCH_TOKENS // len(reading.fed_ids))
        for first in range(0, len(groups), rows):
            self.callbacks.check_cancelled()
            part = groups[first : first + rows]
            edited = {edit.run for group in part for edit in group}
            layers = {run.config.layer: self.layers[run.config.layer] for run in self.runs if run.name in edited}
            functions = edited_mlps(layers, "kept", self.change(part))
            yield changed_forward(reading, layers, functions, len(part), min(layers, default=0))

    def change(self, groups: Sequence[Sequence[Edit]]) -> Change:
        # The saved unit of every expert, otherwise 1, as ``edit_units`` decides.
        saved = {run.name: (self.units.get(run.name, {}), range(run.layer.config.num_experts)) for run in self.runs}
        units = {run: {each: known.get(each) or 1.0 for each in experts} for run, (known, experts) in saved.items()}
        plans = [edit_plans(self.runs, group, units) for group in groups]

        def change(layer: int, layer_pass: LayerPass) -> Tensor | None:
            own = [plan[layer] for plan in plans]
            if not any(plan.edits for plan in own):
                return None
            row_R = torch.arange(len(own), device=layer_pass.x_STI.device)
            row_P = row_R.repeat_interleave(layer_pass.x_STI.shape[1])
            return layer_pass.contribution(edit_routing(own, row_P, layer_pass.routing))

        return change


def units_of(run: Run, units: Units) -> Tensor:
    """Unit of each expert, [N]; 0 for dead experts, which have none. Without an index every unit is 1."""
    known, experts = units.get(run.name, {}), range(run.layer.config.num_experts)
    return torch.tensor([known.get(expert, 0.0) if known else 1.0 for expert in experts])


def unrelated_readings(language_model: LanguageModel, run: Run, texts: Sequence[str]) -> list[Reading]:
    """Readings of every token of some texts, which are cut to ``UNRELATED_TOKENS`` and to the context length."""
    start, tokenizer = prompt_ids(language_model, "", start_token=run.config.text.start_token), language_model.tokenizer
    most = min(UNRELATED_TOKENS, language_model.max_tokens - len(start))
    ids = [tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"][:most] for text in texts]
    targets = zip((ContinuationTarget(text=text) for text in texts), ids, strict=True)
    return [Reading(language_model, target, (*start, *each), len(start), {}) for target, each in targets]


def check_priced(edits: Sequence[Edit]) -> None:
    """Check that the price of some edits can be measured. Raises UserError if there is no edit, or one has a
    condition."""
    if not edits:
        raise UserError("There is no edit whose price could be measured. Add at least one.")
    if conditional := [edit for edit in edits if edit.when is not None]:
        raise UserError(f"The price of an edit with a condition cannot be measured: {conditional[0]}. Remove it.")


def edit_price(
    language_model: LanguageModel,
    runs: Sequence[Run],
    edits: Sequence[Edit],
    units: Units | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> EditPrice:
    """Measure the price of some edits, made on every token, beside that of random experts.

    Edits without a run belong to the first. ``units`` are those of ``all_units``, by default without a database.

    Raises:
        UserError: there is no edit, or one has a condition or names an unknown run or expert.
    """
    return completed(price_in_steps(language_model, runs, edits, units, callbacks), callbacks)


def price_in_steps(
    language_model: LanguageModel,
    runs: Sequence[Run],
    edits: Sequence[Edit],
    units: Units | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Steps[EditPrice]:
    """``edit_price`` in steps of one text, or of one item of the ability test."""
    check_priced(edits)
    named = [edit if edit.run else edit.model_copy(update={"run": runs[0].name}) for edit in edits]
    layers = layers_of(language_model, runs)
    passes = EditedPasses(language_model, runs, layers, all_units(runs) if units is None else units, callbacks)
    passes.change([named])  # reports unknown runs and experts before anything is measured
    groups = [(), named, *passes.random_groups([named])]  # the first row has no edit
    texts, items = unrelated_readings(language_model, runs[0], UNRELATED), ability_items()
    yield 0, (total := len(texts) + len(items))

    def logits(reading: Reading) -> Tensor:
        return torch.cat([forward.logits_BSV for forward in passes.forwards(reading, groups)])

    kl, losses = list[Tensor](), list[Tensor]()
    for done, reading in enumerate(texts, start=1):
        logits_GSV = logits(reading)
        kl.append(_divergence(logits_GSV[0].log_softmax(-1), logits_GSV))
        losses.append(-reading.continuation_log_p(logits_GSV).cpu())
        yield done, total
    solved: dict[AbilityKind, list[Tensor]] = {kind: [] for kind in get_args(AbilityKind)}
    for done, item in enumerate(items, start=1 + len(texts)):
        ids = text_ids(language_model, runs, item.prompt)
        right, wrong = (
            read_target(language_model, ids, ContinuationTarget(text=text)) for text in (item.right, item.wrong)
        )
        logits_GSV = logits(right)
        # Two continuations of one token follow the same pass.
        others_GSV = logits_GSV if right.fed_ids == wrong.fed_ids else logits(wrong)
        is_solved_G = right.continuation_log_p(logits_GSV).sum(1) > wrong.continuation_log_p(others_GSV).sum(1)
        solved[item.kind].append(is_solved_G.cpu())
        yield done, total
    kl_GS, loss_GS = torch.cat(kl, 1), torch.cat(losses, 1)
    change_GS = loss_GS - loss_GS[:1]
    every_IG = torch.cat([torch.stack(each) for each in solved.values()]).double()

    def on_text(rows: slice) -> PriceOnText:
        kl_S, change_S = kl_GS[rows].mean(0), change_GS[rows].mean(0)
        return PriceOnText(
            float(kl_S.mean().clamp_min(0)), float(change_S.mean()), _error_of_mean(kl_S), _error_of_mean(change_S)
        )

    def ability(rows: slice) -> Ability:
        shares = {kind: float(torch.stack(each).double().mean(0)[rows].mean()) for kind, each in solved.items()}
        return Ability(all=float(every_IG[:, rows].mean()), **shares)

    original, edited, drawn = slice(0, 1), slice(1, 2), slice(2, None)
    return EditPrice(
        edits=on_text(edited),
        random=on_text(drawn),
        items=len(items),
        original_ability=ability(original),
        ability=ability(edited),
        random_ability=ability(drawn),
        ability_error=_error_of_mean(every_IG[:, 1] - every_IG[:, 0]),
        difference_error=_error_of_mean(every_IG[:, 1] - every_IG[:, drawn].mean(1)),
    )


def _error_of_mean(values: Tensor) -> float:
    """Standard error of the mean of some values; 0 for a single one."""
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else 0.0


def _divergence(original_SV: Tensor, logits_GSV: Tensor) -> Tensor:
    """KL divergence from the original distribution at each position, [G, S], on the CPU."""
    edited_GSV = logits_GSV.log_softmax(-1)
    kl_GSV = F.kl_div(edited_GSV, original_SV.expand_as(edited_GSV), log_target=True, reduction="none")
    return kl_GSV.sum(2).cpu()
