"""Measure ablation and steering effects of every active expert of an indexed run, and store them.

Shapes: P examples, M examples of one sequence or one expert, N experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.trainer.analysis.ablation.interventions import InterventionEffects, Interventions, measure_interventions
from mxd.trainer.analysis.ablation.sampling import (
    ExpertActivity,
    SampledExamples,
    density_matched_experts,
    get_indexed_run,
    group_by_sequence,
    read_activity,
    read_sequences,
    sample_examples,
    select_experts,
)
from mxd.trainer.analysis.ablation.summary import ExpertAblation, summarise, write_ablations
from mxd.trainer.analysis.indexing.activations import Ints
from mxd.trainer.config import AblationConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_fits
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

EXPERTS_PER_CHUNK = 4096
"""Experts whose contributions and residual streams are in memory at a time."""
EXAMPLES_PER_FORWARD = 16


@dataclass(frozen=True)
class AblationResult:
    """Summary that ``mxd ablate`` reports: medians over the experts that are active in the index."""

    run: str
    experts: int
    examples: int
    loss_increase: float
    kl_amplified: float
    kl_random_expert: float
    kl_random_direction: float
    input_dependence: float


def build_ablations(
    run: Run,
    config: AblationConfig,
    language_model: LanguageModel,
    database: Engine,
    *,
    callbacks: Callbacks = NO_CALLBACKS,
) -> AblationResult:
    """Measure all active experts or the chosen ones, and replace their stored results in one transaction.

    Raises:
        UserError: the run is not indexed, was trained on another language model, or has no examples of a chosen
            expert.
        CancelledError: the task was cancelled. Previous results are unchanged.
    """
    check_fits(language_model, run)
    with Session(database) as session:
        record = get_indexed_run(session, run.name)
        activity = read_activity(session, record)
        random_experts = density_matched_experts(activity, config.seed)
        examples = sample_examples(session, record, config.examples_per_bin)
        if config.experts:
            examples = select_experts(examples, config.experts, random_experts, record)
        sequences = read_sequences(session, record)
        ablation_run = _AblationRun(run, language_model, config.seed, activity, random_experts, examples, sequences)
        run_id = record.id
    ablations = list(ablation_run.measure_experts(callbacks))
    with writing(database) as session:
        write_ablations(session, run_id, [asdict(ablation) for ablation in ablations], config)
    return _result(run.name, ablations)


class _AblationRun:
    def __init__(
        self,
        run: Run,
        language_model: LanguageModel,
        seed: int,
        activity: ExpertActivity,
        random_experts: Ints,
        examples: SampledExamples,
        sequences: dict[int, list[int]],
    ) -> None:
        self.layer = run.config.layer
        self.sparse_layer = run.layer.to(language_model.device_of(run.config.layer))
        self.language_model = language_model
        self.seed = seed
        self.activity = activity
        self.examples = examples
        self.sequences = sequences
        self.random_experts = random_experts

    def measure_experts(self, callbacks: Callbacks) -> Iterator[ExpertAblation]:
        """Yield the ablation of every expert with random examples."""
        total = len(self.examples.expert)
        measured_examples = 0
        for low in range(0, len(self.activity.density), EXPERTS_PER_CHUNK):
            within_P = (self.examples.expert >= low) & (self.examples.expert < low + EXPERTS_PER_CHUNK)
            examples = self.examples.select(np.flatnonzero(within_P))
            parts: list[tuple[Ints, InterventionEffects]] = []
            for sequence, rows in self._forwards(examples):
                callbacks.check_cancelled()
                parts.append((rows, self._measure(sequence, examples.select(rows))))
                measured_examples += len(rows)
                callbacks.on_progress(measured_examples, total, "")
            yield from self._summaries(examples, parts)

    def _forwards(self, examples: SampledExamples) -> Iterator[tuple[int, Ints]]:
        for sequence, rows in group_by_sequence(examples):
            for start in range(0, len(rows), EXAMPLES_PER_FORWARD):
                yield sequence, rows[start : start + EXAMPLES_PER_FORWARD]

    def _measure(self, sequence: int, examples: SampledExamples) -> InterventionEffects:
        random_expert = self.random_experts[examples.expert]
        interventions = Interventions(
            position=torch.from_numpy(examples.position),
            expert=torch.from_numpy(examples.expert),
            unit=torch.from_numpy(self.activity.p99[examples.expert]),
            random_expert=torch.from_numpy(random_expert),
            random_unit=torch.from_numpy(self.activity.p99[random_expert]),
        )
        seed = int(np.random.SeedSequence([self.seed, sequence]).generate_state(1)[0])
        ids = self.sequences[sequence]
        effects = measure_interventions(self.language_model, self.layer, self.sparse_layer, ids, interventions, seed)
        # To the CPU in one go: averaging waits for every number, and a dispatched model has effects on two devices.
        return InterventionEffects(*(values.cpu() for values in effects))

    def _summaries(
        self, examples: SampledExamples, parts: list[tuple[Ints, InterventionEffects]]
    ) -> Iterator[ExpertAblation]:
        if not parts:
            return
        order = np.argsort(np.concatenate([rows for rows, _ in parts]))
        columns = zip(*(part for _, part in parts), strict=True)
        joined = InterventionEffects(*(torch.cat(values)[torch.from_numpy(order)] for values in columns))
        experts, starts = np.unique(examples.expert, return_index=True)
        for expert, rows in zip(experts.tolist(), np.split(np.arange(len(examples.expert)), starts[1:]), strict=True):
            effects = InterventionEffects(*(values[torch.from_numpy(rows)] for values in joined))
            weight_M = torch.from_numpy(examples.weight[rows]).float()
            yield summarise(self.language_model, expert, int(self.random_experts[expert]), effects, weight_M)


def _result(run: str, ablations: list[ExpertAblation]) -> AblationResult:
    def median(values: list[float]) -> float:
        return float(np.median(values)) if values else float("nan")

    return AblationResult(
        run=run,
        experts=len(ablations),
        examples=sum(ablation.examples for ablation in ablations),
        loss_increase=median([ablation.loss_increase for ablation in ablations if ablation.loss_increase is not None]),
        kl_amplified=median([ablation.kl_amplified for ablation in ablations]),
        kl_random_expert=median([ablation.kl_random_expert for ablation in ablations]),
        kl_random_direction=median([ablation.kl_random_direction for ablation in ablations]),
        input_dependence=median([ablation.input_dependence for ablation in ablations]),
    )
