"""Evaluations of runs that differ in their seed alone, taken together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from trainer.config import EvaluateConfig, TrainConfig
from trainer.evaluation.intervals import Bootstrap, Floats, Interval
from trainer.store import EvaluationRecord

Settings = Mapping[str, Any]
"""A run's settings, as they stand in its file and in the store."""

NOT_COMPARED = ("name", "seed", "text_seed", "checkpoint_every", "log_every")
"""Settings in which runs may differ and still be seeds of one another. Several seeds that are fitted on one pass have
the order of the text in common, the first as its own seed and the others as their ``text_seed``."""


@dataclass(frozen=True)
class Seeds:
    """Evaluations of one or more seeds of the same fit, on the same text."""

    records: tuple[EvaluationRecord, ...]
    settings: Settings
    """Those of the first."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the runs, with their K where that is not their own."""
        return tuple(record.subject for record in self.records)

    @property
    def delta_ce(self) -> Interval:
        """Added loss, its interval over sequences and, where there are several, over seeds."""
        if len(self.records) == 1:
            return Interval(**self.records[0].result["delta_ce"])
        values_RS: list[Floats] = [np.frombuffer(it.sequences, "<f4").astype(np.float64) for it in self.records]
        config = EvaluateConfig.model_validate(self.records[0].settings)
        return Bootstrap(len(values_RS[0]), config.resamples, config.seed).mean_over_seeds(values_RS)

    def measure(self, name: str) -> Interval:
        """Mean over the seeds of a measure that has an interval, between the lowest and the highest end of theirs."""
        found = [record.result["intervals"][name] for record in self.records]
        known = [it for it in found if it["value"] is not None]
        if not known:
            return Interval(float("nan"), float("nan"), float("nan"))
        return Interval(
            float(np.mean([it["value"] for it in known])),
            min(it["value"] if it["low"] is None else it["low"] for it in known),
            max(it["value"] if it["high"] is None else it["high"] for it in known),
        )


def same_settings(settings: Settings, left_out: Collection[str] = ()) -> dict[str, Any]:
    """What has to be equal for runs to be seeds of one another, and may still differ by ``left_out``."""
    # What was not chosen may also be missing: settings that came later.
    defaults = _defaults()
    return {
        name: value
        for name, value in sorted(settings.items())
        if name not in NOT_COMPARED and name not in left_out and value is not None and value != defaults.get(name)
    }


@cache
def _defaults() -> Mapping[str, Any]:
    """Of settings that need not be chosen, as they stand in a run's file; a method and a K are always told."""
    fields = TrainConfig.model_fields.items()
    optional = {name: field for name, field in fields if not field.is_required() and name not in ("method", "k")}
    chosen = {name: field.get_default(call_default_factory=True) for name, field in optional.items()}
    return TrainConfig.model_construct(**chosen).model_dump(mode="json", include=set(optional))


def by_seeds(records: Iterable[tuple[EvaluationRecord, Settings]]) -> list[Seeds]:
    """Evaluations of single runs, those of the same fit, text and settings together.

    Args:
        records: evaluations, each with the settings of its run.
    """
    groups: dict[str, list[tuple[EvaluationRecord, Settings]]] = defaultdict(list)
    for record, settings in records:
        if "verdicts" not in record.result:
            continue  # of several runs at once
        config = EvaluateConfig.model_validate(record.settings)
        groups[f"{record.fingerprint} {config} {same_settings(settings)}"].append((record, settings))
    return [Seeds(tuple(record for record, _ in members), members[0][1]) for members in groups.values()]
