"""Strength sweep: one edit at several strengths in one batch, with the effect and the cost of each.

All measures are taken on the steered texts:

- ``kl``: KL divergence from the steered next-token distribution to the baseline's after the same text, per token.
- ``activation``: mean gate activation of the varied expert with which the original model reads the text, in units.
- ``promoted``: probability mass, with the edits, of the tokens that the expert promotes most, per token. It judges.
- ``perplexity_ratio``: perplexity of the text without edits, divided by that of the baseline texts.

``activation`` and ``promoted`` are concept scores. Each is compared with a control: the same edit of another expert, a
random one of similar density, at the same strength and with the same random numbers. A score clearly exceeds its
control if the difference is at least that of ``SMALLEST_DIFFERENCE``, and at least ``STANDARD_ERRORS`` of its standard
errors.

The suggested strength is the smallest one above the neutral one at which ``promoted`` clearly exceeds its control and
the text stays fluent: ``perplexity_ratio`` is at most ``MAX_PERPLEXITY_RATIO``.

Shapes: B texts, T tokens, P = B * T, K active experts, I input width, O output width, V vocabulary size.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Self

import numpy as np
import torch

from mxd.trainer.config.steering import EditMode, SteeringConfig, StrengthSweepConfig
from mxd.trainer.errors import UserError
from mxd.trainer.inference.generation import RowBatch, SequenceState, StepOutput
from mxd.trainer.inference.results import (
    MAX_PERPLEXITY_RATIO,
    ConceptScore,
    StrengthSweepDoneEvent,
    StrengthSweepPoint,
    StrengthSweepProgressEvent,
    StrengthSweepStep,
    StrengthSweepText,
    strength_text,
)
from mxd.trainer.inference.steering import SteeredText, Steering, units_without_index
from mxd.trainer.inference.units import Units, random_experts
from mxd.trainer.language_model.mlp_hooks import EditedMlp, LayerPass
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids, single_texts
from mxd.trainer.layers.mxd import Routing
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.display import fixed, signed

NUM_PROMOTED = 20
TEXTS_PER_BATCH = 16
TokenIds = tuple[int, ...]


@dataclass(frozen=True)
class Concept:
    """One expert after a prompt, as a scale for texts that continue the prompt."""

    language_model: LanguageModel
    run: Run
    expert: int
    unit: float
    """99th percentile of the expert's gate activation."""
    prompt: Sequence[int]

    @torch.inference_mode()
    def mean_activations(self, texts: Sequence[TokenIds]) -> dict[TokenIds, float]:
        """Mean gate activation, in units, with which the original model reads the new tokens of each text."""
        means: dict[TokenIds, float] = {}
        distinct = [text for text in dict.fromkeys(texts) if text]
        layer, sparse_layer = self.run.config.layer, self.run.layer
        for start in range(0, len(distinct), TEXTS_PER_BATCH):
            group = distinct[start : start + TEXTS_PER_BATCH]
            width = max(map(len, group))
            # Padding on the right does not change the tokens before it.
            ids_BT = torch.tensor([[*self.prompt, *text, *[0] * (width - len(text))] for text in group])
            x_PI = self.language_model.capture(layer, ids_BT).inputs_for(sparse_layer).float()
            routing = sparse_layer.to(x_PI.device).route(x_PI)
            own_P = (routing.activations_TK * (routing.indices_TK == self.expert)).sum(dim=-1)
            activations_BT = own_P.reshape(ids_BT.shape)[:, len(self.prompt) :]
            for text, activations_T in zip(group, activations_BT, strict=True):
                means[text] = activations_T[: len(text)].mean().item() / self.unit
        return means

    @torch.no_grad()
    def promoted_tokens(self) -> dict[int, str]:
        """Tokens (id -> text) that one unit of the expert alone makes more probable, strongest first. Adds what the
        block adds because of the contribution on the prompt's last token to the residual stream after the last block,
        then unembeds it."""
        passes: list[LayerPass] = []
        layer, additions = self.run.config.layer, self.language_model.additions
        sparse_layer = self.run.layer.to(self.language_model.device_of(layer))
        with self.language_model.replace_mlps({layer: EditedMlp(sparse_layer, passes.append)}):
            residual_1W = self.language_model.residual(torch.tensor([list(self.prompt)]))[0, -1:]
        last = passes[0].at(slice(-1, None))
        activation_11 = last.dense_PM.new_full((1, 1), self.unit)
        expert_11 = torch.full_like(activation_11, self.expert, dtype=torch.int64)
        routing = Routing(activation_11, expert_11)
        output_1O = last.contribution(routing)
        # Taken away from the MLP's output, and the sign turned: what the block adds because of one more unit.
        added_1W = -additions.of_vectors(layer, self.prompt, [len(self.prompt) - 1], -output_1O)
        passed_1W = added_1W * additions.passed_on(layer)
        residual_1W = residual_1W.to(passed_1W)  # not rounded to the language model's dtype
        residual_2W = torch.cat([residual_1W, residual_1W + passed_1W])
        without_V, with_V = self.language_model.unembed(residual_2W).log_softmax(dim=-1)
        top: list[int] = (with_V - without_V).topk(min(NUM_PROMOTED, len(with_V))).indices.tolist()
        texts = single_texts(self.language_model, set(top))
        return {token: texts[token] for token in top}


SMALLEST_DIFFERENCE = {"activation": 0.01, "promoted": 0.01}
"""Smallest difference of a concept score to the control's that counts as the concept: in units, or in probability."""
STANDARD_ERRORS = 2
"""The same in standard errors of the difference."""
LIMITS = (
    f"A difference is clear from {100 * SMALLEST_DIFFERENCE['promoted']:g} percentage point (or "
    f"{100 * SMALLEST_DIFFERENCE['activation']:g} % of p99) and {STANDARD_ERRORS} standard errors. A text is fluent up "
    f"to perplexity × {MAX_PERPLEXITY_RATIO:g}."
)
HARDLY = 1.25
"""Differences of less than this many times the limit are hardly clear."""
NEUTRAL: Mapping[EditMode, float] = {"scale": 1.0, "add": 0.0, "set": 0.0, "ablate": 0.0}
"""Strength at which an edit changes nothing (``set``: the weakest)."""


def _losses(texts: Sequence[SteeredText]) -> list[float]:
    """Loss of each token without edits, in nats."""
    return [event.original_loss for text in texts for event in text.events]


class StrengthSweep:
    """One request: several steerings of one prompt that join a batch together."""

    def __init__(
        self,
        concept: Concept,
        config: StrengthSweepConfig,
        promoted: Mapping[int, str],
        steered: Mapping[float, Steering],
        controls: Mapping[float, Steering],
    ) -> None:
        """``steered`` has the steering of each strength in ascending order; the first also writes the baseline.
        ``config`` names the control. ``promoted``: token -> its text."""
        self._concept, self._config, self._promoted = concept, config, promoted
        self._mode = config.edits[config.edit].mode
        self._steerings = [*steered.values(), *controls.values()]
        self._baseline = self._steerings[0].of_variant("baseline")
        self._steered = {strength: steering.of_variant("steered") for strength, steering in steered.items()}
        self._controls = {strength: steering.of_variant("steered") for strength, steering in controls.items()}
        self._started = time.monotonic()

    @classmethod
    def prepare(
        cls,
        language_model: LanguageModel,
        runs: Sequence[Run],
        config: StrengthSweepConfig,
        units: Units | None = None,
        prompt: Sequence[int] | None = None,
    ) -> Self:
        """Check a request; the first run is steered. Arguments as ``Steering.prepare``. Raises UserError: as
        ``Steering.prepare``, or the varied edit does not exist or has no strength."""
        if config.edit >= len(config.edits):
            raise UserError(f"There is no edit {config.edit}. The {len(config.edits)} edits are counted from 0.")
        varied = config.edits[config.edit]
        if varied.mode == "ablate":
            raise UserError("The mode 'ablate' has no strength to vary. Use 'scale', 'add' or 'set'.")
        run = next((run for run in runs if run.name == (varied.run or runs[0].name)), runs[0])
        control = config.control
        if control is None:
            units_N = [run.units.get(each, 0.0 if run.units else 1.0) for each in range(run.layer.config.num_experts)]
            # The densities are unknown, so all active experts count as similar.
            control = next(iter(random_experts(np.sign(units_N), varied.expert)), varied.expert)
        if units is None or control not in units.get(run.name, {}):
            saved = units_without_index(runs, config.model_copy(update={"control": control}))
            units = saved if units is None else {name: {**saved[name], **units.get(name, {})} for name in saved}
        start_token = runs[0].config.text.start_token
        ids = prompt_ids(language_model, config.prompt if prompt is None else prompt, start_token=start_token)

        concept = Concept(language_model, run, varied.expert, units[run.name][varied.expert], ids)
        promoted = concept.promoted_tokens()

        def prepared(strength: float, expert: int) -> Steering:
            steering = Steering.prepare(language_model, runs, at_strength(config, strength, expert), units, ids)
            return replace(steering, watched=tuple(promoted))

        first, *stronger = sorted(set(config.strengths))
        # The baseline is the same at every strength, so it is generated only once.
        steered = {first: prepared(first, varied.expert)}
        steered |= {each: replace(prepared(each, varied.expert), variants=("steered",)) for each in stronger}
        controls = {
            strength: prepared(strength, control).alone()
            for strength in steered
            if varied.mode == "set" or strength != NEUTRAL[varied.mode]  # else every expert gives the same text
        }
        return cls(concept, config.model_copy(update={"control": control}), promoted, steered, controls)

    @property
    def finished(self) -> bool:
        return all(steering.finished for steering in self._steerings)

    def rows(self) -> list[SequenceState]:
        return [row for steering in self._steerings for row in steering.rows()]

    def join(self, batch: RowBatch) -> Iterator[StrengthSweepStep]:
        """Compute the prompt at every strength and sample the first tokens; yield progress after each strength."""
        for steering in self._steerings:
            list(steering.join(batch))  # its events are also in its texts
            yield self._progress()
        if self.finished:
            yield from self._score()

    def advance(self, batch: RowBatch, step: StepOutput) -> Iterator[StrengthSweepStep]:
        for steering in self._steerings:
            if not steering.finished:
                list(steering.advance(batch, step))
        yield self._progress()
        if self.finished:
            yield from self._score()

    def _progress(self, scored: Mapping[float, ConceptScore] = MappingProxyType({})) -> StrengthSweepProgressEvent:
        """Figures up to here; ``scored`` has the activation scores by strength."""
        written = [text for steering in self._steerings for text in steering.texts]
        tokens, total = sum(text.new_tokens for text in written), len(written) * self._config.sampling.max_tokens
        texts = [self._text(each, scored.get(each)) for each, own in self._steered.items() if own[0].events]
        suggested = suggest_strength(texts, self._mode) if self.finished or 2 * tokens >= total else None
        return StrengthSweepProgressEvent(tokens, total, texts=tuple(texts), suggested=suggested)

    def _text(self, strength: float, activation: ConceptScore | None) -> StrengthSweepText:
        texts = self._steered[strength]
        control = self._controls.get(strength, texts)
        ratio = math.exp(min(fmean(_losses(texts)) - fmean(_losses(self._baseline)), 50.0))
        means = [{text.sample: fmean(text.watched) for text in own if text.watched} for own in (texts, control)]
        return StrengthSweepText(
            strength=strength,
            kl=fmean(event.kl for text in texts for event in text.events),
            perplexity_ratio=ratio,
            is_fluent=ratio <= MAX_PERPLEXITY_RATIO,
            text=texts[0].text,
            control_text=control[0].text,
            activation=activation,
            promoted=_compared("promoted", *means) if control[0].events else None,
        )

    def _score(self) -> Iterator[StrengthSweepStep]:
        """Score the texts by strength, the smallest first; yield progress after each, then the result."""
        scored: dict[float, ConceptScore] = {}
        for strength, texts in self._steered.items():
            pair = texts, self._controls.get(strength, texts)
            ids = [{text.sample: tuple(event.id for event in text.events) for text in own} for own in pair]
            means = self._concept.mean_activations([each for own in ids for each in own.values()])
            scored[strength] = _compared("activation", *({key: means[it] for key, it in own.items()} for own in ids))
            yield self._progress(scored)
        points = [StrengthSweepPoint(**vars(self._text(strength, score))) for strength, score in scored.items()]
        suggested = suggest_strength(points, self._mode)
        yield StrengthSweepDoneEvent(
            points=tuple(points),
            baseline_loss=fmean(_losses(self._baseline)),
            baseline_text=self._baseline[0].text,
            control=self._config.control or 0,
            suggested=suggested,
            is_unclear=is_unclear(points, suggested, self._mode),
            verdict=sweep_verdict(points, suggested, self._mode),
            next_strengths=() if suggested is not None else next_strengths(points, self._mode),
            limits=LIMITS,
            promoted=tuple(self._promoted.values()),
            seconds=time.monotonic() - self._started,
        )


def at_strength(config: StrengthSweepConfig, strength: float, expert: int | None = None) -> SteeringConfig:
    """Steering config with the varied edit at one strength, of another expert if one is given."""
    change = {"strength": strength} if expert is None else {"strength": strength, "expert": expert}
    edits = tuple(
        edit.model_copy(update=change) if index == config.edit else edit for index, edit in enumerate(config.edits)
    )
    return SteeringConfig(**{name: getattr(config, name) for name in SteeringConfig.model_fields} | {"edits": edits})


def suggest_strength(points: Sequence[StrengthSweepText], mode: EditMode) -> float | None:
    """Suggested strength by the rule above, for ``points`` in ascending order."""
    fluent = (point for point in points if point.is_fluent)
    return next((each.strength for each in fluent if each.strength > NEUTRAL[mode] and each.exceeds_control), None)


def is_unclear(points: Sequence[StrengthSweepText], suggested: float | None, mode: EditMode) -> bool:
    """True if more samples may suggest another strength, or one: the suggested difference is hardly clear, or a large
    enough one is not yet clear."""
    chosen = (each.promoted for each in points if each.strength == suggested and each.promoted is not None)
    if any(score.steered - score.control < HARDLY * (score.clear_from - score.control) for score in chosen):
        return True
    below = (each for each in points if each.is_fluent and NEUTRAL[mode] < each.strength < (suggested or math.inf))
    scores = [point.promoted for point in below if point.promoted is not None]
    return suggested is None or any(
        score.steered - score.control >= SMALLEST_DIFFERENCE["promoted"] and not score.exceeds_control
        for score in scores
    )


SMALLEST_STEP = 0.05
"""Strengths closer than this are not distinguished."""


def next_strengths(points: Sequence[StrengthSweepText], mode: EditMode) -> tuple[float, ...]:
    """Four strengths to try after ``points`` in ascending order: between the last fluent one and the next, or up to
    twice the largest if all are fluent. None if the gap is small."""
    varied = [point for point in points if point.strength > NEUTRAL[mode]]
    fluent = list(takewhile(lambda point: point.is_fluent, varied))
    low = fluent[-1].strength if fluent else NEUTRAL[mode]
    step = low / 4 if len(fluent) == len(varied) else (varied[len(fluent)].strength - low) / 5
    return tuple(round(low + step * i, 2) for i in range(1, 5)) if step >= SMALLEST_STEP else ()


def sweep_verdict(points: Sequence[StrengthSweepPoint], suggested: float | None, mode: EditMode) -> str:
    """Return which strength to use and by which rule, or why there is none."""

    def named(point: StrengthSweepPoint) -> str:
        return strength_text(mode, point.strength) if point.strength else "0"

    chosen = next((point for point in points if point.strength == suggested), None)
    if chosen is None:
        above = [each for each in points if each.strength > NEUTRAL[mode]]
        shown = next((each for each in above if each.exceeds_control), None)
        if shown is None and above:
            most = max(above, key=lambda each: each.promoted.steered - each.promoted.control)
            return (
                "At no strength are promoted tokens clearly more probable than with the control: the largest "
                f"difference is {_difference(most.promoted)} points, at {named(most)}."
            )
        if shown is None:
            return "No strength above the neutral one was measured."
        return (
            f"Promoted tokens are first clearly more probable than with the control at {named(shown)} "
            f"({_difference(shown.promoted)} points), where perplexity is × {shown.perplexity_ratio:.1f}: above "
            f"× {MAX_PERPLEXITY_RATIO:g}, a text does not count as fluent."
        )
    score, best = chosen.promoted, max((p for p in points if p.is_fluent), key=lambda p: p.promoted.steered)
    sentences = [
        f"{named(chosen)} is the smallest strength at which the probability of promoted tokens exceeds the control’s "
        f"by at least {SMALLEST_DIFFERENCE['promoted']:.0%} and {STANDARD_ERRORS} standard errors, at a perplexity of "
        f"at most × {MAX_PERPLEXITY_RATIO:g}.",
        f"It is {score.steered:.1%} (control {score.control:.1%}, difference {_difference(score)}), at perplexity "
        f"× {chosen.perplexity_ratio:.1f}.",
        "At no other strength within this limit is it higher."
        if best.promoted.steered <= score.steered
        else f"The largest within this limit is {best.promoted.steered:.1%} at {named(best)}, at perplexity "
        f"× {best.perplexity_ratio:.1f}.",
    ]
    return " ".join(sentences).replace("%", " %")


def _difference(score: ConceptScore) -> str:
    """Difference to the control in percentage points, with its standard errors."""
    error = fixed(100 * STANDARD_ERRORS * score.standard_error, 1)
    return f"{signed(100 * (score.steered - score.control), 1)} ± {error}"


def _compared(measure: str, steered: Mapping[int, float], control: Mapping[int, float]) -> ConceptScore:
    """A concept score of both by sample, with the standard error of their difference over the samples."""
    pairs = [(steered[sample], control[sample]) for sample in sorted(steered.keys() & control.keys())]
    differences = [ours - theirs for ours, theirs in pairs]
    error = stdev(differences) / math.sqrt(len(pairs)) if len(pairs) > 1 else 0.0
    mean, control_mean = fmean(ours for ours, _ in pairs), fmean(theirs for _, theirs in pairs)
    required = max(SMALLEST_DIFFERENCE[measure], STANDARD_ERRORS * error)
    return ConceptScore(mean, control_mean, error, control_mean + required, mean - control_mean >= required)
