"""A dose curve: one edit at several strengths, all in one batch, with what each does and what it costs.

Effect and fluency are read off the texts that the edited language model writes:

- ``kl``: KL from the steered next-token distribution to that without edits, after the same text, per token.
- ``lift``: how much probability the tokens that the expert itself promotes gain, among the five most probable.
- ``loss``: mean of −log p of the written tokens under the language model without edits. Where it rises far above that
  of its own texts, the texts have stopped being texts.

The suggested strength is the largest one that still reads well and shows: going up from where the edit changes nothing,
the last before ``loss`` exceeds that of the texts there by more than ``MOST_LOSS``, if its ``kl`` exceeds theirs by at
least ``LEAST_KL``; none where there is no such strength.

Shapes: T tokens, I input width, O output width, V vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import torch
from torch import Tensor

from trainer.comparison import Alternative
from trainer.config import DoseConfig, Edit, EditMode, SteeringConfig
from trainer.dose_curve import DoseCurve, DosePoint, DoseProgress, DoseStep
from trainer.errors import UserError
from trainer.generation import Row, RowBatch, Step
from trainer.language_model import LanguageModel
from trainer.layers.sparse import Routing
from trainer.routing import prompt_ids, single_texts
from trainer.run import Run
from trainer.stand_ins import Mlp
from trainer.steering import NewToken, Steering, SteeringStep, Units, saved_units

MOST_LOSS = 0.5
"""Nats a token by which a text may be less likely than without the edit and still read like one."""
LEAST_KL = 0.05
"""Nats a token from which an edit shows at all."""
PROMOTED = 20
NEUTRAL: Mapping[EditMode, float] = {"scale": 1.0, "add": 0.0, "set": 0.0, "off": 0.0}


@dataclass
class _Texts:
    """What is known of the texts of one arm at one strength."""

    kl: list[float] = field(default_factory=list)
    lift: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    first: str = ""

    def add(self, token: NewToken, promoted: frozenset[int]) -> None:
        self.kl.append(token.kl)
        self.lift.append(_mass(token.alternatives, promoted) - _mass(token.other_alternatives, promoted))
        unedited = math.log(max(token.probability, 1e-300))
        self.losses.append(token.delta_log_probability * (token.arm == "steered") - unedited)
        if token.sample == 0:
            self.first += token.text


class Dose:
    """One request: several steerings of one prompt that join a batch together and leave it one by one."""

    def __init__(
        self, steerings: Sequence[Steering], config: DoseConfig, strengths: Sequence[float], promoted: Mapping[int, str]
    ) -> None:
        self._config = config
        self._strengths = strengths
        self._steerings = steerings
        self._promoted = promoted
        self._texts = [_Texts() for _ in steerings]
        self._default = _Texts()
        self._started = time.monotonic()

    @classmethod
    def prepare(cls, language_model: LanguageModel, runs: Sequence[Run], config: DoseConfig, units: Units) -> Dose:
        """Check a request; the first run is the one that is steered.

        Raises:
            UserError: as ``Steering.prepare``, or the edit that is to be varied is not there or has no strength.
        """
        if config.edit >= len(config.edits):
            raise UserError(f"There is no edit {config.edit} to vary; there are {len(config.edits)}, counted from 0.")
        varied = config.edits[config.edit]
        if varied.mode == "off":
            raise UserError("An expert that is off has no strength to vary; choose scale, add or set.")
        strengths = sorted(set(config.strengths))
        steerings = [
            Steering.prepare(language_model, runs, at_strength(config, strength), units) for strength in strengths
        ]
        # The text without edits is the same at every strength: it is written once.
        alone = [replace(steering, arms=("steered",)) for steering in steerings[1:]]
        run = next(run for run in runs if run.name == (varied.run or runs[0].name))
        unit = units.get(run.name, {}).get(varied.expert) or 1.0
        promoted = promoted_tokens(language_model, run, config.prompt, varied, unit)
        return cls([steerings[0], *alone], config, strengths, promoted)

    @property
    def finished(self) -> bool:
        """Whether all texts have ended."""
        return all(steering.finished for steering in self._steerings)

    def rows(self) -> list[Row]:
        """The rows of texts that go on."""
        return [row for steering in self._steerings for row in steering.rows()]

    def join(self, batch: RowBatch) -> Iterator[DoseStep]:
        """Read the prompt at every strength, and take the first tokens."""
        for place, steering in enumerate(self._steerings):
            self._take(place, steering.join(batch))
        yield from self._told()

    def advance(self, batch: RowBatch, step: Step) -> Iterator[DoseStep]:
        """Take the next token of each text that goes on."""
        for place, steering in enumerate(self._steerings):
            if not steering.finished:
                self._take(place, steering.advance(batch, step))
        yield from self._told()

    def _take(self, place: int, steps: Iterator[SteeringStep]) -> None:
        for step in steps:
            if isinstance(step, NewToken):
                texts = self._default if step.arm == "default" else self._texts[place]
                texts.add(step, frozenset(self._promoted))

    def _told(self) -> Iterator[DoseStep]:
        sampling, texts = self._config.sampling, [self._default, *self._texts]
        yield DoseProgress(sum(len(it.losses) for it in texts), len(texts) * sampling.samples * sampling.max_tokens)
        if self.finished:
            yield self._curve()

    def _curve(self) -> DoseCurve:
        points = tuple(
            DosePoint(strength, fmean(texts.kl), fmean(texts.lift), fmean(texts.losses), texts.first)
            for strength, texts in zip(self._strengths, self._texts, strict=True)
        )
        default_loss = fmean(self._default.losses)
        return DoseCurve(
            points=points,
            default_loss=default_loss,
            default_text=self._default.first,
            suggested=suggested(points, default_loss, self._config.edits[self._config.edit].mode),
            promoted=tuple(self._promoted.values()),
            seconds=time.monotonic() - self._started,
        )


def dose(
    language_model: LanguageModel, run: Run | Sequence[Run], config: DoseConfig, units: Units | None = None
) -> Iterator[DoseStep]:
    """Write the same prompt with one edit at several strengths; yields ``DoseProgress``, and ``DoseCurve`` at the end.

    Args:
        run: the run that is steered, or several of different layers, that one first.
        units: run -> expert -> its 99th percentile, the unit of ``add`` and ``set``; by default those saved with the
            runs, and 1 where it is not known.

    Raises:
        UserError: as ``Dose.prepare``; at once, before the first step is asked for.
    """
    runs = [run] if isinstance(run, Run) else list(run)
    return _alone(
        language_model, Dose.prepare(language_model, runs, config, saved_units(runs) if units is None else units)
    )


def _alone(language_model: LanguageModel, it: Dose) -> Iterator[DoseStep]:
    batch = RowBatch(language_model)
    yield from it.join(batch)
    while not it.finished:
        yield from it.advance(batch, batch.step())


def at_strength(config: DoseConfig, strength: float) -> SteeringConfig:
    """The steering with the varied edit at one strength."""
    edits = tuple(
        edit.model_copy(update={"strength": strength}) if place == config.edit else edit
        for place, edit in enumerate(config.edits)
    )
    return SteeringConfig(**config.model_dump(exclude={"edit", "strengths", "edits"}), edits=edits)


def suggested(points: Sequence[DosePoint], default_loss: float, mode: EditMode) -> float | None:
    """The strength that the rule above suggests, of ``points`` in ascending order."""
    start = min(range(len(points)), key=lambda place: abs(points[place].strength - NEUTRAL[mode]))
    neutral, found = points[start], None
    for point in points[start + 1 :]:
        if point.loss > max(default_loss, neutral.loss) + MOST_LOSS:
            break
        if point.kl >= neutral.kl + LEAST_KL:
            found = point.strength
    return found


@torch.no_grad()
def promoted_tokens(language_model: LanguageModel, run: Run, prompt: str, edit: Edit, unit: float) -> dict[int, str]:
    """Tokens (id -> text) that one unit of an expert by itself makes more likely after a prompt, most of all first.

    Its contribution is added to the residual stream behind the last block; final norm and unembedding do the rest.
    """
    seen: list[Tensor] = []

    def watch(x_1TI: Tensor, mlp: Mlp) -> Tensor:
        seen.append(x_1TI[0, -1:].float())
        return mlp()

    ids = prompt_ids(language_model, prompt)
    with language_model.stand_in({run.config.layer: watch}):
        residual_1O = language_model.last_residual(torch.tensor([ids]))[0, -1:]
    x_1I = seen[0]
    routing = Routing(x_1I.new_full((1, 1), unit), torch.tensor([[edit.expert]], device=x_1I.device))
    layer = run.layer.to(x_1I.device)
    added_1O = torch.stack(layer.parts(layer.contribution(layer.dense_output(x_1I), routing))).sum(dim=0)
    log_p_2V = language_model.logits_of(
        torch.cat([residual_1O, residual_1O + added_1O.to(residual_1O.dtype)])
    ).log_softmax(dim=-1)
    gains_V = log_p_2V[1] - log_p_2V[0]
    found: list[int] = gains_V.topk(min(PROMOTED, len(gains_V))).indices.tolist()
    texts = single_texts(language_model, set(found))
    return {token: texts[token] for token in found}


def _mass(alternatives: Sequence[Alternative], tokens: frozenset[int]) -> float:
    return sum(each.probability for each in alternatives if each.id in tokens)
