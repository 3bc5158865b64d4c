"""Strength sweep (dose curve): one edit at several strengths in one batch, with the effect and the cost of each.

Effect and fluency are measured on the steered texts:

- ``kl``: KL divergence from the steered next-token distribution to the baseline's after the same text, per token.
- ``lift``: probability that the tokens promoted by the expert gain, counted among the five most probable tokens.
- ``loss``: loss of the steered text under the original model, in nats per token. Text whose loss is far above that of
  the baseline texts is no longer fluent.

The suggested strength is the largest one that is fluent and has a visible effect. Strengths are tested upwards from the
neutral one. The test stops when ``loss`` exceeds the neutral loss by more than ``MAX_LOSS_INCREASE``. The last strength
before that is suggested if its ``kl`` exceeds the neutral one's by at least ``MIN_KL``.

Shapes: T tokens, I input width, O output width, V vocabulary size.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import torch
from torch import Tensor

from mxd.trainer.config import DoseConfig, Edit, EditMode, SteeringConfig
from mxd.trainer.errors import UserError
from mxd.trainer.inference.generation import RowBatch, SequenceState, StepOutput
from mxd.trainer.inference.results import (
    Alternative,
    DoseDoneEvent,
    DosePoint,
    DoseProgressEvent,
    DoseStep,
    SteeringStep,
    TokenEvent,
)
from mxd.trainer.inference.steering import Steering, Units, saved_units
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import prompt_ids, single_texts
from mxd.trainer.layers.base import Routing
from mxd.trainer.storage.run import Run

MAX_LOSS_INCREASE = 0.5
"""Largest increase of the loss, in nats per token, at which a text still counts as fluent."""
MIN_KL = 0.05
"""Smallest KL divergence, in nats per token, that counts as a visible effect."""
NUM_PROMOTED = 20
NEUTRAL: Mapping[EditMode, float] = {"scale": 1.0, "add": 0.0, "set": 0.0, "ablate": 0.0}
"""Strength at which an edit changes nothing (``set``: the weakest)."""


@dataclass
class _TextMeasures:
    """Measures of the texts of one variant at one strength, one entry per token."""

    kl: list[float] = field(default_factory=list)
    lift: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    first: str = ""
    """First sample."""

    def add_token(self, token: TokenEvent, promoted: frozenset[int]) -> None:
        self.kl.append(token.kl)
        self.lift.append(_mass(token.alternatives, promoted) - _mass(token.other_alternatives, promoted))
        own_log_probability = math.log(max(token.probability, 1e-300))
        self.losses.append(token.delta_log_probability * (token.variant == "steered") - own_log_probability)
        if token.sample == 0:
            self.first += token.text


class StrengthSweep:
    """One request: several steerings of one prompt that join a batch together."""

    def __init__(
        self, steerings: Sequence[Steering], config: DoseConfig, strengths: Sequence[float], promoted: Mapping[int, str]
    ) -> None:
        self._config = config
        self._strengths = strengths
        self._steerings = steerings
        self._promoted = promoted
        self._steered = [_TextMeasures() for _ in steerings]
        self._baseline = _TextMeasures()
        self._started = time.monotonic()

    @classmethod
    def prepare(
        cls, language_model: LanguageModel, runs: Sequence[Run], config: DoseConfig, units: Units
    ) -> StrengthSweep:
        """Check a request; the first run is steered.

        Raises:
            UserError: as ``Steering.prepare``, or the varied edit does not exist or has no strength.
        """
        if config.edit >= len(config.edits):
            raise UserError(f"There is no edit {config.edit}. The {len(config.edits)} edits are counted from 0.")
        varied = config.edits[config.edit]
        if varied.mode == "ablate":
            raise UserError("The mode 'ablate' has no strength to vary. Use 'scale', 'add' or 'set'.")
        strengths = sorted(set(config.strengths))
        first, *others = (
            Steering.prepare(language_model, runs, at_strength(config, strength), units) for strength in strengths
        )
        # The baseline is the same at every strength, so it is generated only once.
        steerings = [first, *(replace(steering, variants=("steered",)) for steering in others)]
        run = next(run for run in runs if run.name == (varied.run or runs[0].name))
        unit = units.get(run.name, {}).get(varied.expert) or 1.0
        promoted = promoted_tokens(language_model, run, config.prompt, varied, unit)
        return cls(steerings, config, strengths, promoted)

    @property
    def finished(self) -> bool:
        """True if all texts have ended."""
        return all(steering.finished for steering in self._steerings)

    def rows(self) -> list[SequenceState]:
        """The rows of the texts that have not ended."""
        return [row for steering in self._steerings for row in steering.rows()]

    def join(self, batch: RowBatch) -> Iterator[DoseStep]:
        """Compute the prompt at every strength and sample the first tokens."""
        for index, steering in enumerate(self._steerings):
            self._record(index, steering.join(batch))
        yield from self._events()

    def advance(self, batch: RowBatch, step: StepOutput) -> Iterator[DoseStep]:
        """Sample the next token of each text that has not ended."""
        for index, steering in enumerate(self._steerings):
            if not steering.finished:
                self._record(index, steering.advance(batch, step))
        yield from self._events()

    def _record(self, index: int, steps: Iterator[SteeringStep]) -> None:
        for step in steps:
            if isinstance(step, TokenEvent):
                measures = self._baseline if step.variant == "baseline" else self._steered[index]
                measures.add_token(step, frozenset(self._promoted))

    def _events(self) -> Iterator[DoseStep]:
        sampling, measures = self._config.sampling, [self._baseline, *self._steered]
        total = len(measures) * sampling.samples * sampling.max_tokens
        yield DoseProgressEvent(sum(len(each.losses) for each in measures), total)
        if self.finished:
            yield self._curve()

    def _curve(self) -> DoseDoneEvent:
        points = tuple(
            DosePoint(strength, fmean(measures.kl), fmean(measures.lift), fmean(measures.losses), measures.first)
            for strength, measures in zip(self._strengths, self._steered, strict=True)
        )
        baseline_loss = fmean(self._baseline.losses)
        return DoseDoneEvent(
            points=points,
            baseline_loss=baseline_loss,
            baseline_text=self._baseline.first,
            suggested=suggest_strength(points, baseline_loss, self._config.edits[self._config.edit].mode),
            promoted=tuple(self._promoted.values()),
            seconds=time.monotonic() - self._started,
        )


def dose(
    language_model: LanguageModel, run: Run | Sequence[Run], config: DoseConfig, units: Units | None = None
) -> Iterator[DoseStep]:
    """Steer one prompt with one edit at several strengths; yield the progress, then the curve.

    Args:
        language_model: the language model of the runs.
        run: the steered run, or several of different layers with the steered one first.
        config: prompt, edits, sampling and strengths.
        units: run -> expert -> its unit for ``add`` and ``set``; by default the units saved with the runs.

    Raises:
        UserError: as ``StrengthSweep.prepare``; raised by this call, before the first event.
    """
    runs = [run] if isinstance(run, Run) else list(run)
    units = saved_units(runs) if units is None else units
    return _run_alone(language_model, StrengthSweep.prepare(language_model, runs, config, units))


def _run_alone(language_model: LanguageModel, sweep: StrengthSweep) -> Iterator[DoseStep]:
    batch = RowBatch(language_model)
    yield from sweep.join(batch)
    while not sweep.finished:
        yield from sweep.advance(batch, batch.step())


def at_strength(config: DoseConfig, strength: float) -> SteeringConfig:
    """Steering config with the varied edit at one strength."""
    edits = tuple(
        edit.model_copy(update={"strength": strength}) if index == config.edit else edit
        for index, edit in enumerate(config.edits)
    )
    return SteeringConfig(**config.model_dump(exclude={"edit", "strengths", "edits"}), edits=edits)


def suggest_strength(points: Sequence[DosePoint], baseline_loss: float, mode: EditMode) -> float | None:
    """Suggested strength by the rule above, for ``points`` in ascending order."""
    start = min(range(len(points)), key=lambda index: abs(points[index].strength - NEUTRAL[mode]))
    neutral, strength = points[start], None
    for point in points[start + 1 :]:
        if point.loss > max(baseline_loss, neutral.loss) + MAX_LOSS_INCREASE:
            break
        if point.kl >= neutral.kl + MIN_KL:
            strength = point.strength
    return strength


@torch.no_grad()
def promoted_tokens(language_model: LanguageModel, run: Run, prompt: str, edit: Edit, unit: float) -> dict[int, str]:
    """Tokens (id -> text) that one unit of an expert alone makes more probable after a prompt, strongest first.

    Adds the expert's contribution to the residual stream behind the last block, then unembeds it.
    """
    inputs: list[Tensor] = []

    def watch(x_1TI: Tensor, mlp: Mlp) -> Tensor:
        inputs.append(x_1TI[0, -1:].float())
        return mlp()

    ids = prompt_ids(language_model, prompt, start_token=run.config.text.start_token)
    with language_model.replace_mlps({run.config.layer: watch}):
        residual_1O = language_model.residual(torch.tensor([ids]))[0, -1:]
    (x_1I,) = inputs
    routing = Routing(x_1I.new_full((1, 1), unit), torch.tensor([[edit.expert]], device=x_1I.device))
    sparse_layer = run.layer.to(x_1I.device)
    added_1O = sparse_layer.contribution(sparse_layer.dense_output(x_1I), routing)
    residual_2O = torch.cat([residual_1O, residual_1O + added_1O.to(residual_1O.dtype)])
    without_V, with_V = language_model.unembed(residual_2O).log_softmax(dim=-1)
    top: list[int] = (with_V - without_V).topk(min(NUM_PROMOTED, len(with_V))).indices.tolist()
    texts = single_texts(language_model, set(top))
    return {token: texts[token] for token in top}


def _mass(alternatives: Sequence[Alternative], tokens: frozenset[int]) -> float:
    return sum(each.probability for each in alternatives if each.id in tokens)
