"""Evaluations of several seeds of one configuration, grouped. This module does not import PyTorch."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mxd.trainer.config.analysis import EvaluateConfig
from mxd.trainer.config.training import TrainConfig
from mxd.trainer.storage.database.tables import EvaluationRecord
from mxd.trainer.utils.bootstrap import Bootstrap, Floats, Interval

RunSettings = Mapping[str, Any]
"""A run's config, as stored in its file and in the database."""
SEED_SETTINGS = ("name", "seed", "data_seed", "checkpoint_every", "log_every")
"""Settings in which seeds of one configuration may differ. Seeds trained in one pass share the data order, so their
``data_seed`` may differ from their own seed."""


@dataclass(frozen=True)
class SeedGroup:
    """Evaluations of one or more seeds of the same configuration, on the same text."""

    records: tuple[EvaluationRecord, ...]
    settings: RunSettings
    """Config of the first run."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the runs, with K if it is not the run's own."""
        return tuple(record.subject for record in self.records)

    @property
    def loss_increase(self) -> Interval:
        """Mean loss increase, with its interval over sequences and seeds."""
        if len(self.records) == 1:
            return Interval(**self.records[0].result["loss_increase"])
        values_RS: list[Floats] = [np.frombuffer(record.sequences, "<f4").astype(np.float64) for record in self.records]
        config = EvaluateConfig.model_validate(self.records[0].settings)
        return Bootstrap(len(values_RS[0]), config.resamples, config.seed).mean_over_seeds(values_RS)

    def measure(self, name: str) -> Interval:
        """Mean of a metric over the seeds, with the lowest and the highest end of their intervals."""
        intervals = [record.result["intervals"][name] for record in self.records]
        known = [interval for interval in intervals if interval["value"] is not None]
        if not known:
            return Interval(float("nan"), float("nan"), float("nan"))
        return Interval(
            float(np.mean([interval["value"] for interval in known])),
            min(interval["value"] if interval["low"] is None else interval["low"] for interval in known),
            max(interval["value"] if interval["high"] is None else interval["high"] for interval in known),
        )


def comparable_settings(settings: RunSettings, ignored: Collection[str] = ()) -> dict[str, Any]:
    """Settings that must be equal for runs to be seeds of one configuration, without the ``ignored`` ones."""
    # Runs may lack settings that were added later, so default values are omitted.
    defaults = _default_settings()
    return {
        name: value
        for name, value in sorted(settings.items())
        if name not in SEED_SETTINGS and name not in ignored and value is not None and value != defaults.get(name)
    }


@cache
def _default_settings() -> Mapping[str, Any]:
    """Default values of optional settings, except for method and K."""
    fields = TrainConfig.model_fields.items()
    optional = {name: field for name, field in fields if not field.is_required() and name not in ("method", "k")}
    defaults = {name: field.get_default(call_default_factory=True) for name, field in optional.items()}
    return TrainConfig.model_construct(**defaults).model_dump(mode="json", include=set(optional))


def group_by_seeds(records: Iterable[tuple[EvaluationRecord, RunSettings]]) -> list[SeedGroup]:
    """Group evaluations of single runs, each with the config of its run, by configuration, text and evaluation
    settings. Evaluations of several runs are ignored."""
    groups: dict[str, list[tuple[EvaluationRecord, RunSettings]]] = defaultdict(list)
    for record, settings in records:
        if "warnings" not in record.result:
            continue
        config = EvaluateConfig.model_validate(record.settings)
        groups[f"{record.fingerprint} {config} {comparable_settings(settings)}"].append((record, settings))
    return [SeedGroup(tuple(record for record, _ in members), members[0][1]) for members in groups.values()]
