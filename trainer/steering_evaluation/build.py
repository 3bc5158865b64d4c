"""Steer with a sample of experts at several strengths, and keep what became of the texts.

Shapes: R rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
from sqlalchemy import Engine, delete, insert, select
from sqlalchemy.orm import Session
from torch import Tensor
from torch.nn import functional as F

from trainer.config import Sampling, SteeringEvaluationConfig
from trainer.errors import UserError
from trainer.language_model import LanguageModel
from trainer.progress import Progress, ShouldStop, never, silent
from trainer.routing import check_fits, prompt_ids, refuse_several_layers
from trainer.run import Run
from trainer.steering_evaluation.doses import KINDS, Dose, Kind
from trainer.steering_evaluation.texts import Pushed, Pushes, score, self_similarity, write
from trainer.store import ExpertRecord, InfluenceRecord, MeasurementRecord, RunRecord, SteeringDoseRecord, writing


class Stopped(UserError):
    """The evaluation was stopped; the store is as it was."""


@dataclass(frozen=True)
class Subject:
    """An expert that is turned up, with its control and the tokens that it writes for."""

    expert: int
    unit: float
    other: int
    other_unit: float
    promoted: tuple[int, ...]


def evaluate_steering(
    run: Run,
    config: SteeringEvaluationConfig,
    language_model: LanguageModel,
    store: Engine,
    *,
    progress: Progress = silent,
    should_stop: ShouldStop = never,
) -> list[Dose]:
    """Measure, and replace what the store held of it.

    Raises:
        UserError: the run's influence has not been measured, it was fitted to another language model, a prompt is too
            long, or ``should_stop`` said so; what was measured before, if anything, stays.
    """
    check_fits(language_model, run)
    refuse_several_layers(run, "A measurement of steering")
    with Session(store) as session:
        run_id, subjects = _subjects(session, run.name, config)
    doses: list[Dose] = []
    for place, subject in enumerate(subjects):
        if should_stop():
            raise Stopped("The evaluation was stopped; nothing was changed. Run the command to start again.")
        doses.extend(_Doses(run, language_model, config, subject).measured())
        progress(place + 1, len(subjects), "experts")
    with writing(store) as session:
        session.execute(delete(SteeringDoseRecord).where(SteeringDoseRecord.run_id == run_id))
        session.execute(insert(SteeringDoseRecord), [{"run_id": run_id, **asdict(dose)} for dose in doses])
        settings = config.model_dump(mode="json")
        session.merge(MeasurementRecord(run_id=run_id, command="evaluate-steering", settings=settings))
    return doses


def _subjects(session: Session, name: str, config: SteeringEvaluationConfig) -> tuple[int, list[Subject]]:
    """Experts drawn at random among those whose influence is known."""
    record = session.scalar(select(RunRecord).where(RunRecord.name == name))
    run_id = -1 if record is None else record.id
    influences = session.scalars(
        select(InfluenceRecord).where(InfluenceRecord.run_id == run_id).order_by(InfluenceRecord.expert)
    ).all()
    if not influences:
        raise UserError(
            f"It is not known what the experts of {name} write; measure it with mxd influence {name} first."
        )
    units = {it.expert: it.p99 for it in session.scalars(select(ExpertRecord).where(ExpertRecord.run_id == run_id))}
    count = min(config.experts, len(influences))
    drawn = np.random.default_rng(config.seed).choice(len(influences), count, replace=False)
    chosen = [influences[place] for place in sorted(drawn.tolist())]
    return run_id, [
        Subject(it.expert, units[it.expert], it.other, units[it.other], tuple(int(token) for token, _ in it.promoted))
        for it in chosen
    ]


class _Doses:
    """All strengths and kinds of one expert."""

    def __init__(
        self, run: Run, language_model: LanguageModel, config: SteeringEvaluationConfig, subject: Subject
    ) -> None:
        self.block = run.config.layer
        self.layer = run.layer.to(language_model.device_of(run.config.layer))
        self.language_model = language_model
        self.config = config
        self.subject = subject
        self.arms: list[tuple[Kind, float]] = [("none", 0.0)]
        self.arms += [(kind, strength) for kind in KINDS for strength in config.strengths]

    def measured(self) -> Iterator[Dose]:
        """One dose an arm."""
        found = [self._of_prompt(text) for text in self.config.prompts]
        for place, (kind, strength) in enumerate(self.arms):
            kl, loss, similarity, promoted = (float(value) for value in np.mean([it[place] for it in found], axis=0))
            yield Dose(self.subject.expert, kind, strength, kl, loss, similarity, promoted)

    def _of_prompt(self, text: str) -> list[tuple[float, float, float, float]]:
        """KL, loss, self-similarity and share of promoted tokens of each arm."""
        samples, sampling = self.config.samples, Sampling(max_tokens=self.config.max_tokens)
        prompt = prompt_ids(self.language_model, text, room=sampling.max_tokens)
        pushed = Pushed(self.layer, self._pushes())
        seeds = [self.config.seed + sample for sample in range(samples)] * len(self.arms)
        ids_RT = write(self.language_model, self.block, pushed, prompt, seeds, sampling)
        scores = score(self.language_model, self.block, pushed, ids_RT, len(prompt))
        written_RT = ids_RT[:, len(prompt) :]
        promoted_RT = torch.isin(written_RT, torch.tensor(self.subject.promoted))
        return [
            (
                float(scores.kl[rows].mean()),
                float(scores.loss[rows].mean()),
                self_similarity(written_RT[rows]),
                float(promoted_RT[rows].float().mean()),
            )
            for rows in (slice(place * samples, (place + 1) * samples) for place in range(len(self.arms)))
        ]

    def _pushes(self) -> Pushes:
        """A row a sample of each arm."""
        subject = self.subject
        expert = [subject.other if kind == "other" else subject.expert for kind, _ in self.arms]
        unit = [subject.other_unit if kind == "other" else subject.unit for kind, _ in self.arms]
        coefficient = [strength * each for (_, strength), each in zip(self.arms, unit, strict=True)]
        chance = torch.Generator().manual_seed(self.config.seed * 100_003 + subject.expert)
        random_O = F.normalize(torch.randn(self.layer.config.output_width, generator=chance), dim=0)
        direction = [random_O if kind == "direction" else torch.zeros_like(random_O) for kind, _ in self.arms]

        def rows(values: Tensor) -> Tensor:
            return values.repeat_interleave(self.config.samples, dim=0).to(self.language_model.device)

        return Pushes(rows(torch.tensor(expert)), rows(torch.tensor(coefficient)), rows(torch.stack(direction)))
