"""Measure every active expert of an indexed run on its own contexts, and put what was found into the store.

Shapes: P contexts, M contexts of one sequence or one expert, N experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from trainer.config import InfluenceConfig
from trainer.errors import UserError
from trainer.indexing.pairs import Ints
from trainer.influence.arms import Changed, Measured, measure
from trainer.influence.picks import (
    Known,
    Picks,
    by_sequence,
    find_indexed,
    others_of_same_usage,
    read_known,
    read_picks,
    read_sequences,
)
from trainer.influence.summary import Influence, summarise
from trainer.influence.write import write_influences
from trainer.language_model import LanguageModel
from trainer.progress import Progress, ShouldStop, never, silent
from trainer.routing import check_fits, refuse_several_layers
from trainer.run import Run
from trainer.store import writing

EXPERTS_PER_CHUNK = 4096
"""Experts whose contributions and residual streams are held at a time."""
CONTEXTS_PER_FORWARD = 16


class Stopped(UserError):
    """The measurement was stopped; the store is as it was."""


@dataclass(frozen=True)
class InfluenceResult:
    """What ``mxd influence`` reports: medians over the experts that are active in the index."""

    run: str
    experts: int
    contexts: int
    added_loss: float
    kl_up: float
    kl_other: float
    kl_direction: float
    input_dependence: float


def build_influence(
    run: Run,
    config: InfluenceConfig,
    language_model: LanguageModel,
    store: Engine,
    *,
    progress: Progress = silent,
    should_stop: ShouldStop = never,
) -> InfluenceResult:
    """Measure, and replace what the store held of it, all at once.

    Raises:
        UserError: the run is not indexed or was fitted to another language model, or ``should_stop`` said so; what
            was measured before, if anything, stays.
    """
    check_fits(language_model, run)
    refuse_several_layers(run, "Influence")
    with Session(store) as session:
        record = find_indexed(session, run.name)
        measuring = _Measuring(
            run,
            language_model,
            config,
            read_known(session, record),
            read_picks(session, record, config.per_interval),
            read_sequences(session, record),
        )
        run_id = record.id
    found = list(measuring.go(progress, should_stop))
    with writing(store) as session:
        write_influences(session, run_id, [asdict(influence) for influence in found], config)
    return _result(run.name, found)


class _Measuring:
    def __init__(
        self,
        run: Run,
        language_model: LanguageModel,
        config: InfluenceConfig,
        known: Known,
        picks: Picks,
        sequences: dict[int, list[int]],
    ) -> None:
        self.block = run.config.layer
        self.layer = run.layer.to(language_model.device_of(run.config.layer))
        self.language_model = language_model
        self.seed = config.seed
        self.known = known
        self.picks = picks
        self.sequences = sequences
        self.others = others_of_same_usage(known, config.seed)

    def go(self, progress: Progress, should_stop: ShouldStop) -> Iterator[Influence]:
        """The influence of every expert that has contexts."""
        total = len(self.picks.expert)
        done = 0
        for low in range(0, len(self.known.usage), EXPERTS_PER_CHUNK):
            within_P = (self.picks.expert >= low) & (self.picks.expert < low + EXPERTS_PER_CHUNK)
            picks = self.picks.of(np.flatnonzero(within_P))
            parts: list[tuple[Ints, Measured]] = []
            for sequence, places in self._forwards(picks):
                if should_stop():
                    raise Stopped("The measurement was stopped; nothing was changed. Run the command to start again.")
                parts.append((places, self._measure(sequence, picks.of(places))))
                done += len(places)
                progress(done, total, "")
            yield from self._summaries(picks, parts)

    def _forwards(self, picks: Picks) -> Iterator[tuple[int, Ints]]:
        for sequence, places in by_sequence(picks):
            for start in range(0, len(places), CONTEXTS_PER_FORWARD):
                yield sequence, places[start : start + CONTEXTS_PER_FORWARD]

    def _measure(self, sequence: int, picks: Picks) -> Measured:
        other = self.others[picks.expert]
        changed = Changed(
            position=torch.from_numpy(picks.position),
            expert=torch.from_numpy(picks.expert),
            unit=torch.from_numpy(self.known.p99[picks.expert]),
            other=torch.from_numpy(other),
            other_unit=torch.from_numpy(self.known.p99[other]),
        )
        seed = int(np.random.SeedSequence([self.seed, sequence]).generate_state(1)[0])
        return measure(self.language_model, self.block, self.layer, self.sequences[sequence], changed, seed)

    def _summaries(self, picks: Picks, parts: list[tuple[Ints, Measured]]) -> Iterator[Influence]:
        if not parts:
            return
        order = np.argsort(np.concatenate([places for places, _ in parts]))
        columns = zip(*(measured for _, measured in parts), strict=True)
        measured = Measured(*(torch.cat(values)[torch.from_numpy(order)] for values in columns))
        experts, starts = np.unique(picks.expert, return_index=True)
        for expert, rows in zip(experts.tolist(), np.split(np.arange(len(picks.expert)), starts[1:]), strict=True):
            own = Measured(*(values[torch.from_numpy(rows)] for values in measured))
            weight_M = torch.from_numpy(picks.weight[rows]).float()
            yield summarise(self.language_model, expert, int(self.others[expert]), own, weight_M)


def _result(run: str, found: list[Influence]) -> InfluenceResult:
    def median(values: list[float]) -> float:
        return float(np.median(values)) if values else float("nan")

    return InfluenceResult(
        run=run,
        experts=len(found),
        contexts=sum(it.contexts for it in found),
        added_loss=median([it.added_loss for it in found if it.added_loss is not None]),
        kl_up=median([it.kl_up for it in found]),
        kl_other=median([it.kl_other for it in found]),
        kl_direction=median([it.kl_direction for it in found]),
        input_dependence=median([it.input_dependence for it in found]),
    )
