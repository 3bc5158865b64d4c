"""Stored evaluations."""

from collections.abc import Sequence

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.queries.report_text import cell, in_unit, in_units, last_part, method_title, page, plural, unit_name
from mxd.backend.schemas.runs import Head, ReportWarning, Row, Section, SectionFigure, Table
from mxd.trainer.evaluation.evaluation_metrics import TABLE, Result, measured_in
from mxd.trainer.evaluation.evaluation_metrics import Section as Part
from mxd.trainer.evaluation.seeds import SeedGroup, group_by_seeds
from mxd.trainer.storage.database.tables import EvaluationRecord, RunRecord
from mxd.trainer.utils.bootstrap import Bootstrap, Interval


def evaluated(session: Session) -> list[EvaluationRecord]:
    """Return the evaluations of single runs, sorted by dataset, method and K."""
    query = select(EvaluationRecord).join(RunRecord, RunRecord.id == EvaluationRecord.run_id)
    order = (EvaluationRecord.text, RunRecord.method, RunRecord.k, RunRecord.seed, RunRecord.name)
    records = [record for record in session.scalars(query.order_by(*order)) if "warnings" in record.result]
    if not records:
        raise NoEvaluationsError("No run has been evaluated yet. Run 'mxd evaluate NAME --dataset DATASET'.")
    return records


def seeds(session: Session) -> list[SeedGroup]:
    """Return the same, grouped by everything but the seed. Raises NoEvaluationsError if there are no evaluations."""
    return group_by_seeds((record, session.get_one(RunRecord, record.run_id).config) for record in evaluated(session))


def added(session: Session) -> list[EvaluationRecord]:
    """Return layer-by-layer evaluations, those of separately trained runs first."""
    query = select(EvaluationRecord).order_by(EvaluationRecord.text, EvaluationRecord.created_at)
    # Results of privacy fine-tuning have steps too.
    records = [record for record in session.scalars(query) if "fine_tuned" in record.result]
    return sorted(records, key=lambda record: bool(record.result["fine_tuned"]))


def newest(session: Session, run: RunRecord) -> EvaluationRecord:
    """Return the newest evaluation of a run. Raises NoEvaluationsError if the run has none."""
    records = evaluations_of_run(session, run)
    if not records:
        raise NoEvaluationsError(
            f"Run '{run.name}' has not been evaluated yet. Run 'mxd evaluate {run.name} --dataset DATASET'."
        )
    return records[0]


def loss_difference(session: Session, one: RunRecord, other: RunRecord) -> tuple[Interval, int] | None:
    """Return the paired difference of two runs' loss increases and its number of tokens. None without evaluations on
    the same sequences."""
    others = {sample_of(record): record for record in evaluations_of_run(session, other)}
    for record in evaluations_of_run(session, one):
        if twin := others.get(sample_of(record)):
            one_S, other_S = (np.frombuffer(each.sequences, "<f4").astype(np.float64) for each in (record, twin))
            settings = record.settings
            interval = Bootstrap(len(one_S), settings["resamples"], settings["seed"]).mean(one_S - other_S)
            return interval, int(record.result["tokens"])
    return None


def is_at_its_own_k(result: Result) -> bool:
    return bool(result.get("trained_k", result["k"]) == result["k"])


def sample_of(record: EvaluationRecord) -> tuple[str, int, int]:
    """Return the values that determine the evaluated sequences."""
    return record.fingerprint, record.result["tokens"], record.settings["seed"]


def evaluations_of_run(session: Session, run: RunRecord) -> list[EvaluationRecord]:
    """Return the evaluations of a run at its own K, newest first."""
    query = select(EvaluationRecord).where(EvaluationRecord.subject == run.name)
    return list(session.scalars(query.order_by(EvaluationRecord.created_at.desc())))


def evaluate_command(run: RunRecord) -> str:
    return f"mxd evaluate {run.name} --dataset HELD_OUT_TEXT --tokens 100k"


FIGURE_HEIGHT = 380
RAREST_DENSEST = (("rarest", "asc"), ("densest", "desc"))
"""Words of links to the experts, and the order of densities there."""


def health_section(session: Session, run: RunRecord, bits: int | None) -> Section:
    """Return how a run's experts are used. ``bits``: those per weight if the weights are stored rounded."""
    units = unit_name(run.method)
    records = _newest_by_text(session, run)
    links = [f"[{name}]({page('experts', run.name, sort='density', order=order)})" for name, order in RAREST_DENSEST]
    title = f"Health of the {units}"
    if not records:
        return _not_evaluated("health", title, run)
    return Section(
        key="health",
        title=title,
        intro=(f"{run.name}, {sample(records[0])}. {units.capitalize()}: {', '.join(links)}.",),
        warnings=tuple(ReportWarning(**warning) for warning in records[0].result["warnings"]),
        tables=(_facts(run, records, bits, "health", "Metrics of health"),),
    )


def _not_evaluated(key: str, title: str, run: RunRecord) -> Section:
    verdict = f"{run.name} has not been evaluated on held-out text."
    return Section(key=key, title=title, verdict=verdict, commands=(evaluate_command(run),))


def faithfulness_sections(session: Session, run: RunRecord, bits: int | None) -> tuple[Section, ...]:
    """Return loss and reconstruction of a run on every text, and the figures of its newest evaluation."""
    records, units = _newest_by_text(session, run), unit_name(run.method)
    metrics, figures = _not_evaluated("faithfulness", "", run), list[SectionFigure]()
    if records:
        metrics = Section(
            key="faithfulness",
            title="",
            intro=(
                f"{sample(records[0])}. 95 % intervals: losses resample sequences, continuations count prompts "
                "(Wilson); none covers training seeds.",
            ),
            tables=(_facts(run, records, bits, "faithfulness", "Faithfulness"),),
        )
        load = f"at x, the least used x of the {units} have y of all activations"
        densities = f"{run.num_experts:,} {units} on the evaluated text"
        figures = [
            SectionFigure(name="load", note=load, height=FIGURE_HEIGHT),
            SectionFigure(name="density-evaluated", note=densities, height=FIGURE_HEIGHT),
        ]
    if sets := added(session):
        tokens = " or ".join(f"{each:,}" for each in sorted({record.result["tokens"] for record in sets}))
        note = f"{plural(len(sets), 'set')} of runs, on {tokens} tokens"
        figures.append(SectionFigure(name="added-layers", note=note, height=FIGURE_HEIGHT))
    return (metrics, *(Section(key=figure.name, title="", figure=figure) for figure in figures))


def _newest_by_text(session: Session, run: RunRecord) -> list[EvaluationRecord]:
    """Return the newest evaluation of a run on each text, newest first."""
    newest: dict[str, EvaluationRecord] = {}
    for record in evaluations_of_run(session, run):
        newest.setdefault(record.text, record)
    return list(newest.values())


def sample(record: EvaluationRecord) -> str:
    result = record.result
    seen = ", which it was trained on" if result["seen_text"] else ""
    return f"{result['tokens']:,} tokens in {result['sequences']:,} sequences of {last_part(record.text)}{seen}"


def _facts(run: RunRecord, records: Sequence[EvaluationRecord], bits: int | None, part: Part, title: str) -> Table:
    """Return the metrics of the newest evaluation, with their values on each text."""
    # With what descriptions of the metrics mention.
    results: list[Result] = [
        {**record.result, "prompts": min(record.settings["prompts"], record.result["sequences"]), "weight_bits": bits}
        for record in records
    ]
    return Table(
        key=part,
        title=title,
        corner="Metric",
        columns=tuple(
            Head(key=record.text, title="Value" if record is records[0] else f"On {last_part(record.text)}")
            for record in records
        ),
        rows=tuple(
            Row(
                key=metric.key,
                title=in_units(metric.title, run.method),
                detail=in_units(metric.described(results[0]), run.method),
                term=metric.term,
                group=in_units(metric.group, run.method),
                is_baseline=metric.is_baseline,
                cells=tuple(
                    cell(measured, in_unit(metric.unit, measured)) for measured in map(metric.measured, results)
                ),
            )
            for metric, _ in measured_in(results[0])
            if metric.section == part
        ),
        axis=None,
    )


def all_evaluations(records: Sequence[EvaluationRecord]) -> Section:
    """Return a table of evaluations of single runs, also older ones and those at another K."""
    rows = tuple(
        Row(
            key=f"{record.subject} {record.text}",
            title=record.subject,
            detail=f"{method_title(result['method'])}, K {result['k']}, {result['num_experts']:,} experts, "
            f"{result['parameters']:,} parameters; {sample(record)}",
            cells=tuple(cell(metric.measured(result), in_unit(metric.unit)) for metric in TABLE),
        )
        for record in records
        for result in [record.result]
    )
    columns = tuple(Head(key=metric.key, title=metric.title, term=metric.term) for metric in TABLE)
    table = Table(key="evaluations", title="All evaluations", corner="Run", columns=columns, rows=rows, axis=None)
    return Section(key="evaluations", title="All evaluations", tables=(table,))
