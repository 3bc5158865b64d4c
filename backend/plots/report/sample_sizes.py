"""Sample sizes of the report's figures and tables: what their numbers are based on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.queries.evaluations import added, evaluated, newest
from mxd.backend.queries.probes import probes, probes_of
from mxd.trainer.storage.database.tables import MeasurementRecord, ProbeRecord, RunRecord, SteeringStrengthRecord

Result = Mapping[str, Any]


def of_evaluations(session: Session) -> str:
    """Number of evaluations of single runs, and the size of their texts."""
    results = [record.result for record in evaluated(session)]
    tokens, sequences = (_values(results, name) for name in ("tokens", "sequences"))
    return f"{_count(len(results), 'evaluation')}, each on {tokens} tokens in {sequences} sequences"


def of_layer_by_layer(session: Session) -> str:
    """Number of sets of runs that replace layers one after another, and the size of their texts."""
    results = [record.result for record in added(session)]
    return f"{_count(len(results), 'set')} of runs, each on {_values(results, 'tokens')} tokens"


def of_probes(session: Session) -> str:
    """Number of test texts of each label file."""
    return _probed(probe for probe, _ in probes(session))


def of_evaluation(session: Session, run: RunRecord) -> str:
    """Number of experts of a run, and the size of the text of its newest evaluation."""
    result = newest(session, run).result
    experts, tokens, sequences = (result[name] for name in ("num_experts", "tokens", "sequences"))
    return f"{experts:,} experts on {tokens:,} tokens in {sequences:,} sequences of {PurePath(result['text']).name}"


def of_probes_of_run(session: Session, run: RunRecord) -> str:
    """Number of test texts of each label file of a run."""
    return _probed(probes_of(session, run))


def of_steering(session: Session, run: RunRecord) -> str:
    """Number of experts that were amplified, and of the texts sampled for each of them."""
    table = SteeringStrengthRecord
    amplified = select(func.count(table.expert.distinct())).where(table.run_id == run.id, table.kind == "expert")
    experts = _count(session.scalar(amplified) or 0, "expert")
    record = session.get(MeasurementRecord, (run.id, "evaluate-steering"))
    if record is None:  # older than the record of settings
        return experts
    samples, tokens, prompts = (record.settings[name] for name in ("samples", "max_tokens", "prompts"))
    texts = f"{_count(samples, 'sample')} of {tokens:,} tokens for each of {_count(len(prompts), 'prompt')}"
    return f"{experts}, {texts} per strength"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _values(results: Sequence[Result], name: str) -> str:
    """The value that all results share, or the smallest and the largest one."""
    low, high = min(result[name] for result in results), max(result[name] for result in results)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _probed(records: Iterable[ProbeRecord]) -> str:
    files = {(probe.labels, probe.level): probe.result for probe in records}
    parts = []
    for (labels, level), result in files.items():
        classes = result["kinds"]["experts"]["classes"]
        panel = next(iter(classes.values()))  # the test examples of a class and all others, the same for each
        tested = sum(panel["class_counts"]) + sum(panel["other_counts"])
        labelled = f"{tested:,} test {level}s of {result['examples']:,} labelled {level}s"
        parts.append(f"{PurePath(labels).name}: {labelled} in {len(classes):,} classes")
    return "; ".join(parts)
