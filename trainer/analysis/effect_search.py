"""Search by effect: what one more unit of every expert would do to the probability of wanted text, and at what price.

After each prompt, W is the log-probability that one of the wanted texts follows, and U that an unwanted one does:

    wish     = mean over prompts of W - U
    effect_n = sum_t <d wish / d y_t, c_n * zD_t>
    price_n  = 1/2 mean over tokens t' of E_e [(sum_t <d (sum_v e_v sqrt(p_v) log p_v) / d y_t, c_n * zD_t>)^2]

Both are per gate activation of 1, added on every token. y_t is the output of the layer's MLP at token t. The effect is
attribution patching (as ``effects``) of an activation that need not occur. The price is the KL divergence of the
next-token distribution from the original one on unrelated text, to second order: half the Fisher information, estimated
with random signs e for each token t' and vocabulary entry v (Hutchinson). One backward pass serves the experts of all
layers, active or not.

Shapes: S read positions, V vocabulary, P tokens of all rows, O output width, N experts, M mixing width, G groups.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from mxd.trainer.analysis.edit_price import RANDOM_GROUPS, EditedPasses, units_of, unrelated_readings
from mxd.trainer.analysis.effects import Forward, Reading, differentiable_forward, layers_of, read_target
from mxd.trainer.analysis.results import COSTLY, EditEffect, EditEffects, FoundExpert, FoundExperts
from mxd.trainer.config.analysis import UNRELATED, ContinuationTarget, FindConfig, SetTarget
from mxd.trainer.config.steering import Edit
from mxd.trainer.errors import UserError
from mxd.trainer.inference.routing import text_ids
from mxd.trainer.inference.units import Units, all_units
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import Routing, SparseLayer
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

MIN_STRENGTH, MAX_STRENGTH = 0.25, 4.0
"""Smallest and largest suggested strength, in units."""
CANDIDATES_PER_HIT = 3
"""Experts that are measured for each one returned. The first order fails for some, most often in early layers."""
SIGNS, PRIOR_SIGNS = 8, 16
"""Draws of random signs per unrelated text; and draws that would weigh as much as the mean price of a layer's experts.
Without it, the experts that a search prefers are those whose price is underestimated."""
EXPERTS_AT_ONCE = 8192


def expert_effects(sparse_layer: SparseLayer, x_PI: Tensor, gradient_PO: Tensor) -> Tensor:
    """Derivative with respect to a gate activation of each expert that is added on every token, [N], from the layer's
    input and the gradient with respect to its output."""
    with torch.no_grad():
        dense_PM = sparse_layer.dense_output(x_PI)
        ids_N1 = torch.arange(sparse_layer.config.num_experts, device=x_PI.device).unsqueeze(1)
        one_11 = sparse_layer.mixing(Routing(torch.ones_like(ids_N1[:1], dtype=dense_PM.dtype), ids_N1[:1]))
    with torch.inference_mode(False), torch.enable_grad():
        # The output is affine in the mixing, so the derivative is the same everywhere.
        mixing_PM = dense_PM.new_zeros(len(x_PI), one_11.shape[1]).requires_grad_()
        output_PO = sparse_layer.decode_mixed(dense_PM.clone(), mixing_PM)
        (slope_PM,) = torch.autograd.grad(output_PO, mixing_PM, gradient_PO.clone())
    with torch.no_grad():
        slope_M = slope_PM.sum(0)
        parts = [
            sparse_layer.mixing(Routing(torch.ones_like(ids_n1, dtype=dense_PM.dtype), ids_n1)) @ slope_M
            for ids_n1 in ids_N1.split(EXPERTS_AT_ONCE)
        ]
    return torch.cat(parts)


def unit_prices(
    language_model: LanguageModel,
    runs: Sequence[Run],
    units: Units | None = None,
    texts: Sequence[str] = UNRELATED,
    callbacks: Callbacks = NO_CALLBACKS,
) -> dict[str, Tensor]:
    """Predicted price of one unit of every expert, added on every token, [N], by run; 0 for dead experts.

    The price grows with the square of the strength. Its square root says how much an expert changes what the language
    model predicts on any text: one with a price near 0 cannot steer. Those on the default texts are read from the
    run, where indexing has stored them.

    Args:
        units: those of ``all_units``, by default without a database.
    """
    saved = all_units(runs) if units is None else units
    for run in runs if tuple(texts) == UNRELATED else ():
        if (stored_N := saved_prices(run)) is not None:
            language_model.unit_prices.setdefault(run.layer, {}).setdefault(UNRELATED, stored_N)
    price = activation_prices(language_model, runs, texts, callbacks)
    return {run.name: prices_of_units(price[run.config.layer], units_of(run, saved), len(texts)) for run in runs}


def activation_prices(
    language_model: LanguageModel,
    runs: Sequence[Run],
    texts: Sequence[str] = UNRELATED,
    callbacks: Callbacks = NO_CALLBACKS,
) -> dict[int, Tensor]:
    """Predicted price of a gate activation of 1 of every expert, added on every token, [N], by layer.

    They are cached with the language model.

    Raises:
        UserError: the language model has no single residual stream.
    """
    key, cache, layers = tuple(texts), language_model.unit_prices, layers_of(language_model, runs)
    missing = {layer: each for layer, each in layers.items() if key not in cache.get(each, {})}
    if missing:
        totals = {layer: torch.zeros(each.config.num_experts) for layer, each in missing.items()}
        generator, tokens = torch.Generator().manual_seed(0), 0
        for reading in unrelated_readings(language_model, runs[0], texts):
            callbacks.check_cancelled()
            forward = differentiable_forward(reading, missing)
            log_p_SV = forward.logits_BSV[0].log_softmax(-1)
            tokens += len(log_p_SV)
            for _ in range(SIGNS):
                signs_SV = torch.randint(0, 2, log_p_SV.shape, generator=generator).to(log_p_SV) * 2 - 1
                value = (signs_SV * (log_p_SV.detach() / 2).exp() * log_p_SV).sum()
                for layer, effect_N in _effects(forward, value.unsqueeze(0)).items():
                    totals[layer] += effect_N**2 / (2 * SIGNS)
        for layer, total_N in totals.items():
            cache.setdefault(layers[layer], {})[key] = total_N / tokens
    return {layer: cache[each][key] for layer, each in layers.items()}


def prices_of_units(price_N: Tensor, unit_N: Tensor, num_texts: int = len(UNRELATED)) -> Tensor:
    """Price of one unit of each expert, [N], from the estimated one of a gate activation of 1. Estimates shrink towards
    their mean."""
    price_N, draws = price_N * unit_N**2, SIGNS * num_texts
    mean = price_N.sum() / (unit_N > 0).sum().clamp_min(1)
    return (draws * price_N + PRIOR_SIGNS * mean) / (draws + PRIOR_SIGNS) * (unit_N > 0)


def saved_prices(run: Run) -> Tensor | None:
    """Prices of a gate activation of 1 that are stored with a run, [N]; None without them."""
    experts = range(run.layer.config.num_experts)
    return torch.tensor([run.prices[each] for each in experts]) if run.prices.keys() == {*experts} else None


def _effects(forward: Forward, value_1: Tensor) -> dict[int, Tensor]:
    """``expert_effects`` of each layer on a value of a pass, on the CPU."""
    return {
        layer: expert_effects(forward.sparse_layers[layer], forward.input_of(layer), gradient_TO).cpu()
        for layer, gradient_TO in forward.gradients(value_1).items()
    }


@dataclass(frozen=True)
class _State:
    wish: float
    log_odds: float
    """Log-odds of the probability to be reached: of a wanted text or, without any, of no unwanted one."""
    share: float
    """Probability of a wanted text or, without any, of an unwanted one."""

    @property
    def probability(self) -> float:
        return math.exp(_log_sigmoid(self.log_odds))

    @property
    def slope(self) -> float:
        """Change of the log-odds per change of the wish."""
        return 1 / (1 - self.share)


Sides = tuple[Sequence[Reading], Sequence[Reading]]


@dataclass(frozen=True, eq=False)
class _Search(EditedPasses):
    """Runs and texts of a search."""

    config: FindConfig
    readings: Sequence[Sides]
    """For each prompt, those of the wanted texts and those of the unwanted ones."""
    held_out: Sequence[Sides]
    """As ``readings``, of the texts that the search does not use."""

    @classmethod
    def prepare(
        cls,
        language_model: LanguageModel,
        runs: Run | Sequence[Run],
        config: FindConfig,
        units: Units | None,
        callbacks: Callbacks,
    ) -> Self:
        chosen = [runs] if isinstance(runs, Run) else list(runs)

        def sides(prompt: str) -> Sides:
            ids = text_ids(language_model, chosen, prompt)
            return _readings(language_model, ids, config.wanted), _readings(language_model, ids, config.unwanted)

        readings, held_out = (tuple(map(sides, texts)) for texts in (config.prompts, config.held_out))
        units, layers = all_units(chosen) if units is None else units, layers_of(language_model, chosen)
        return cls(language_model, chosen, layers, units, callbacks, config, readings, held_out)

    def predicted(self, state: _State, change: float) -> float:
        """Predicted change of the wish for its first-order ``change``. Log-odds are closer to linear than it is."""
        if self.config.wanted and self.config.unwanted:
            return change
        sign = 1 if self.config.wanted else -1
        before, after = sign * state.log_odds, sign * (state.log_odds + state.slope * change)
        return sign * (_log_sigmoid(after) - _log_sigmoid(before))

    def states(self, values_irG: Sequence[tuple[Sequence[Tensor], Sequence[Tensor]]]) -> list[_State]:
        """State of each row, from the log-probabilities of each prompt's readings in each row."""
        log_p = [[torch.stack(list(side)).double().logsumexp(0) for side in sides if side] for sides in values_irG]
        parts = [torch.stack(side) for side in zip(*log_p, strict=True)]  # wanted, then unwanted
        sign = 1 if self.config.wanted else -1
        wish_G = sign * parts[0].mean(0) - sum(part.mean(0) for part in parts[1:])
        log_share_G = (parts[0].logsumexp(0) - math.log(len(parts[0]))).clamp_max(-1e-9)
        odds_G = sign * (log_share_G - torch.log(-torch.expm1(log_share_G)))
        rows = zip(wish_G.tolist(), odds_G.tolist(), log_share_G.exp().tolist(), strict=True)
        return [_State(*row) for row in rows]

    def linearized(self) -> tuple[_State, dict[str, Tensor]]:
        """The wish without edits, and its derivative with respect to one unit of each expert, [N], by run."""
        values: list[tuple[list[Tensor], list[Tensor]]] = []
        totals = {layer: torch.zeros(each.config.num_experts) for layer, each in self.layers.items()}
        for sides in self.readings:
            values.append(([], []))
            for place, sign in ((0, 1), (1, -1)):
                effects = []
                for reading in sides[place]:
                    self.callbacks.check_cancelled()
                    forward = differentiable_forward(reading, self.layers)
                    value_1 = reading.value(forward)
                    effects.append(_effects(forward, value_1))
                    values[-1][place].append(value_1.detach())
                # The derivative of a logsumexp weighs each reading by its share of the probability.
                weights = torch.cat(values[-1][place]).softmax(0).tolist() if effects else []
                for weight, effect in zip(weights, effects, strict=True):
                    for layer, effect_N in effect.items():
                        totals[layer] += sign * weight / len(self.readings) * effect_N
        (state,) = self.states(values)
        return state, {run.name: totals[run.config.layer] * units_of(run, self.units) for run in self.runs}

    def measured(self, groups: Sequence[Sequence[Edit]], texts: Sequence[Sides]) -> list[_State]:
        """State of each group, over some texts."""

        def values(reading: Reading) -> Tensor:
            return torch.cat([reading.value(forward) for forward in self.forwards(reading, groups)])

        return self.states([(list(map(values, wanted)), list(map(values, unwanted))) for wanted, unwanted in texts])

    def effects(self, groups: Sequence[Sequence[Edit]]) -> EditEffects:
        """Effect of each group on the wish, and its price."""
        drawn = self.random_groups(groups)
        rows = [(), *groups, *drawn]
        before, *states = self.measured(rows, self.readings)
        wishes = [[state.wish for state in self.measured(rows, [text])] for text in self.held_out]
        change_HR = torch.tensor(wishes).reshape(len(wishes), len(rows))
        change_HR = change_HR[:, 1:] - change_HR[:, :1]
        own_HG, random_HR = change_HR.split([len(groups), len(drawn)], dim=1)
        rises_G = (own_HG > random_HR.amax(1, keepdim=True).clamp_min(0)).sum(0).tolist()
        held_out_G = own_HG.mean(0).tolist() if wishes else [None] * len(groups)
        texts = unrelated_readings(self.language_model, self.runs[0], self.config.unrelated)
        random_prices, effects = self.prices(texts, drawn), list[EditEffect]()
        for n, (state, price) in enumerate(zip(states, self.prices(texts, groups), strict=False)):
            random_price = sum(random_prices[RANDOM_GROUPS * n : RANDOM_GROUPS * (n + 1)]) / RANDOM_GROUPS
            effect = EditEffect(
                change=state.wish - before.wish,
                alone=_log_sigmoid(state.log_odds) - _log_sigmoid(before.log_odds),
                probability=state.probability,
                price=price,
                random_price=random_price,
                is_costly=price >= COSTLY * random_price,
                held_out_change=held_out_G[n],
                held_out_rises=rises_G[n],
            )
            effects.append(effect)
        return EditEffects(
            effects=tuple(effects),
            held_out=self.config.held_out,
            random_experts=len(drawn),
            random_change=max(state.wish for state in states[len(groups) :]) - before.wish,
            random_held_out_change=float(random_HR.mean(0).max()) if wishes else None,
        )


def _readings(language_model: LanguageModel, ids: Sequence[int], texts: Sequence[str]) -> list[Reading]:
    """Readings of some continuations of a prompt. Those of one token share a reading."""
    each = [read_target(language_model, ids, ContinuationTarget(text=text)) for text in dict.fromkeys(texts)]
    single = tuple(dict.fromkeys(reading.ids[-1] for reading in each if len(reading.ids) == len(ids) + 1))
    longer = [reading for reading in each if len(reading.ids) > len(ids) + 1]
    return [*([read_target(language_model, ids, SetTarget(tokens=single))] if single else []), *longer]


def _log_sigmoid(value: float) -> float:
    return min(value, 0.0) - math.log1p(math.exp(-abs(value)))


def find(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: FindConfig,
    units: Units | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> FoundExperts:
    """Find the experts of all runs that make wanted text more probable at the lowest price.

    All experts are ranked by their predicted effect at equal predicted price. The best ``CANDIDATES_PER_HIT`` times
    ``config.hits`` are measured on the prompts, and those with the largest measured change are returned. The suggested
    strength is the smaller one of that at which the probability is predicted to be reached and that at which the
    predicted price is ``config.max_price``.

    Args:
        units: those of ``all_units``, by default without a database.

    Raises:
        TooLongError: a prompt and a text exceed the language model's context length.
        UserError: a text has no token, two runs share a layer, or one was trained on another language model.
    """
    search = _Search.prepare(language_model, runs, config, units, callbacks)
    before, effects = search.linearized()
    candidates = _candidates(search, before, effects, CANDIDATES_PER_HIT * config.hits)
    after = search.measured([(edit,) for edit, *_ in candidates], search.readings) if candidates else []
    experts = [
        FoundExpert(
            edit=edit,
            per_unit=per_unit,
            predicted=search.predicted(before, edit.strength * per_unit),
            predicted_price=edit.strength**2 * price,
            change=state.wish - before.wish,
            probability=state.probability,
        )
        for (edit, per_unit, price), state in zip(candidates, after, strict=True)
    ]
    experts.sort(key=lambda expert: -expert.change)
    return FoundExperts(before.wish, before.probability, tuple(experts[: config.hits]))


def _candidates(
    search: _Search, before: _State, effects: Mapping[str, Tensor], count: int
) -> list[tuple[Edit, float, float]]:
    """Edits with the largest predicted effects at equal predicted price, with effect and price of one unit."""
    found: list[tuple[float, Edit, float, float]] = []
    wanted_odds = search.config.probability / (1 - search.config.probability)
    needed = math.log(wanted_odds) - before.log_odds
    prices = unit_prices(search.language_model, search.runs, search.units, search.config.unrelated, search.callbacks)
    for run, price_N in prices.items():
        per_root_N = torch.where(price_N > 0, effects[run] / price_N.sqrt(), 0.0)
        best = per_root_N.topk(min(count, len(price_N)))
        for score, expert in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            if score > 0:
                effect, price = float(effects[run][expert]), float(price_N[expert])
                wanted = max(needed, 0.0) / (before.slope * effect)
                steps = round(min(wanted, math.sqrt(search.config.max_price / price)) / MIN_STRENGTH)
                strength = min(max(steps, 1) * MIN_STRENGTH, MAX_STRENGTH)
                found.append((score, Edit(run=run, expert=expert, mode="add", strength=strength), effect, price))
    found.sort(key=lambda each: -each[0])
    return [(edit, effect, price) for _, edit, effect, price in found[:count]]


def measure(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: FindConfig,
    groups: Sequence[Sequence[Edit]],
    units: Units | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> EditEffects:
    """Measure the effect of each group of edits on the wish, on the prompts and on ``config.held_out``, and its price.
    Arguments and errors as ``find``.

    Edits without a run belong to the first.

    Raises:
        UserError: an edit has a condition, or is not of mode ``add``.
    """
    search = _Search.prepare(language_model, runs, config, units, callbacks)
    first = {"run": search.runs[0].name}
    named = [[edit if edit.run else edit.model_copy(update=first) for edit in group] for group in groups]
    if unsupported := [edit for group in named for edit in group if edit.mode != "add" or edit.when is not None]:
        raise UserError(f"Effects are measured for edits such as 12:add:2 only, not for {unsupported[0]}.")
    return search.effects(named) if groups else EditEffects((), config.held_out, 0, 0.0, None)
