"""Runs: metrics, figures of their cards, runs to combine with one, and units of the experts that requests edit."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.errors import ExpertNotFoundError, NoIndexError, RunNotFoundError
from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.queries.commands import index_command, train_again_command
from mxd.backend.queries.evaluations import evaluations_of_run
from mxd.backend.queries.outcomes import COMPARED, RECOVERED, dead_in_index, leader, loss_sentences
from mxd.backend.queries.report_text import BEYOND, BOLD, last_part, span
from mxd.backend.schemas.routing import LayerRun, RunOptions
from mxd.backend.schemas.runs import HeldOut, MetricPoint, RunDetail, RunList, RunMetric, RunStatus, RunSummary
from mxd.trainer.config.layer import Mixing, method_traits
from mxd.trainer.config.steering import SteeringConfig
from mxd.trainer.config.training import DEAD_AFTER_TOKENS
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.evaluation.evaluation_metrics import Measured, routing_warning
from mxd.trainer.inference.units import edit_units
from mxd.trainer.language_model.sources import display_name
from mxd.trainer.language_model.tokenizer import has_chat_template
from mxd.trainer.storage.database.tables import EvaluationRecord, IndexRecord, MetricRecord, RunRecord
from mxd.trainer.storage.run import Run, resume_command
from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.display import listed, unknown_expert, unknown_run

IsFitting = Callable[[str], bool | None]
"""Tells whether a run is being trained; None if unknown."""

Scalar = str | int | float | bool | None


def find_run(session: Session, name: str) -> RunRecord:
    record = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if record is None:
        raise RunNotFoundError(unknown_run(name, session.scalars(select(RunRecord.name))))
    return record


def find_index(session: Session, run: RunRecord) -> IndexRecord:
    record = session.get(IndexRecord, run.id)
    if record is None:
        raise NoIndexError(f"Run '{run.name}' is not indexed. Run 'mxd index {run.name} --dataset DATASET --tokens N'.")
    return record


def check_expert(run: RunRecord, expert: int) -> None:
    if not 0 <= expert < run.num_experts:
        raise ExpertNotFoundError(unknown_expert(expert, run.name, run.num_experts))


def list_runs(session: Session, is_fitting: IsFitting) -> RunList:
    runs = session.scalars(select(RunRecord).order_by(RunRecord.started_at.desc(), RunRecord.id.desc())).all()
    indexes = {record.run_id: record for record in session.scalars(select(IndexRecord))}
    newest = select(MetricRecord.run_id, func.max(MetricRecord.step).label("step")).group_by(MetricRecord.run_id)
    last = newest.subquery()
    joined = (MetricRecord.run_id == last.c.run_id) & (MetricRecord.step == last.c.step)
    metrics = {record.run_id: record for record in session.scalars(select(MetricRecord).join(last, joined))}
    evaluations = _evaluations(session)
    summaries = tuple(
        _summary(run, metrics.get(run.id), indexes.get(run.id), evaluations.get(run.name, UNKNOWN), is_fitting)
        for run in runs
    )
    measured = defaultdict[tuple[str, int, RunMetric], dict[str, Measured]](dict)
    for run in runs:
        intervals = dict(evaluations.get(run.name, UNKNOWN)["intervals"])
        if run.id in indexes:
            intervals["dead_in_index"] = dead_in_index(run, indexes[run.id].active_experts)
        for metric, interval in intervals.items():
            measured[run.language_model, run.layer, metric][run.name] = interval
    best = defaultdict[str, list[RunMetric]](list)
    better = {metric.key: metric.better for metric in COMPARED}
    for (_, _, key), of_mlp in measured.items():
        if (side := better[key]) and (name := leader(of_mlp, side)):
            best[name].append(key)
    return RunList(runs=summaries, losses=loss_sentences(session), best=best, notes=_notes(summaries, bool(best)))


def _notes(runs: Sequence[RunSummary], is_bold: bool) -> tuple[str, ...]:
    held_out = [run.held_out for run in runs if run.held_out is not None]
    if not held_out:
        return ()
    tokens, texts = [one.tokens for one in held_out], list(dict.fromkeys(last_part(one.text) for one in held_out))
    sample = f"{span(min(tokens), max(tokens), '{:,}'.format)} tokens of {listed(texts)}"
    shares = [run.routing_share if run.strict_routing_share is None else run.strict_routing_share for run in runs]
    return (
        f"Held-out results: {sample}; 95\N{NO-BREAK SPACE}% intervals over sequences, not seeds.",
        *([BEYOND] if any(share is not None and share > 1 for share in shares) else []),
        *([BOLD] if is_bold else []),
    )


def run_detail(session: Session, run: RunRecord, is_fitting: IsFitting) -> RunDetail:
    index = session.get(IndexRecord, run.id)
    metrics = metrics_after(session, run, -1)
    names = ("activation", "hidden_width", "parameters", "input_width", "output_width", "context_length")
    facts = {name: getattr(run, name) for name in names} | {"index_text": last_part(index.text) if index else None}
    if (mixing := mixing_of(run)) is not None:
        facts["mixing"] = mixing
    return RunDetail(
        run=_summary(
            run, metrics[-1] if metrics else None, index, _evaluations(session).get(run.name, UNKNOWN), is_fitting
        ),
        error=run.error,
        resume_command=resume_command(run.name, run.config.get("parents", ())),
        config=flatten(run.config) | facts,
        metrics=tuple(map(MetricPoint.of, metrics)),
    )


def metrics_after(session: Session, run: RunRecord, step: int) -> list[MetricRecord]:
    query = select(MetricRecord).where(MetricRecord.run_id == run.id, MetricRecord.step > step)
    return list(session.scalars(query.order_by(MetricRecord.step)))


def last_step(session: Session, run: RunRecord) -> int:
    """Return the step of the newest metric; -1 if there is none."""
    newest = session.scalar(select(func.max(MetricRecord.step)).where(MetricRecord.run_id == run.id))
    return -1 if newest is None else newest


def status_of(run: RunRecord, is_fitting: IsFitting) -> RunStatus:
    """Return the current status. A killed run still has the status ``training`` in the database."""
    killed = run.status == "training" and is_fitting(run.name) is False
    return "stopped" if killed else cast(RunStatus, run.status)


def flatten(config: Mapping[str, object], prefix: str = "") -> dict[str, Scalar]:
    """Flatten a nested config to names such as ``optimizer.learning_rate``."""
    flat: dict[str, Scalar] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        elif isinstance(value, str | int | float | None):
            flat[prefix + name] = value
        else:
            flat[prefix + name] = str(value)
    return flat


UNKNOWN: dict[str, Any] = {
    "held_out": None,
    "routing_share": None,
    "strict_routing_share": None,
    "evaluated_k": (),
    "intervals": {},
}
"""Fields of ``RunSummary``, and intervals by ``RunMetric``, for a run that was not evaluated."""


def _number(*path: str) -> Any:
    return EvaluationRecord.result[path].as_float()


def _evaluations(session: Session) -> dict[str, dict[str, Any]]:
    """Return fields of ``RunSummary`` from the newest evaluation of each run at its own K, and all K at which it was
    evaluated. Evaluations of several runs are left out."""
    result = EvaluationRecord.result
    columns = (
        RunRecord.name,
        EvaluationRecord.subject,
        EvaluationRecord.text,
        result["tokens"].as_integer(),
        result["seen_text"].as_boolean(),
        result["k"].as_integer(),
        _number("routing_share"),
        _number("strict_routing_share"),
        *(_number("intervals", "normalized_mse", end) for end in ("value", "low", "high")),
        *(_number("loss_recovered_mean", end) for end in ("value", "low", "high")),
        *(_number("loss_increase", end) for end in ("value", "low", "high")),
    )
    query = select(*columns).join(RunRecord, RunRecord.id == EvaluationRecord.run_id)
    rows = session.execute(query.order_by(EvaluationRecord.created_at, EvaluationRecord.id))
    newest: dict[str, dict[str, Any]] = {}
    for name, subject, text, tokens, seen_text, k, share, strict, *ends in rows:
        if share is None:
            continue
        before = newest.get(name, UNKNOWN)
        evaluated = {**before, "evaluated_k": tuple(sorted({*before["evaluated_k"], k}))}
        if subject == name:
            error, recovered, increase = (Interval(*ends[at : at + 3]) for at in (0, 3, 6))
            held_out = HeldOut(
                text=text,
                tokens=tokens,
                seen_text=seen_text,
                normalized_mse=error.value,
                loss_recovered=recovered,
                loss_increase=increase,
            )
            intervals = {"normalized_mse": asdict(error), RECOVERED: asdict(recovered)}
            evaluated |= {"held_out": held_out, "routing_share": share, "strict_routing_share": strict}
            evaluated |= {"intervals": intervals}
        newest[name] = evaluated
    return newest


def mixing_of(run: RunRecord) -> Mixing | None:
    """Return the mixing of an MxD; None for other methods. Imported runs and older ones have the paper's."""
    if not run.method.endswith("mxd"):
        return None
    chosen = "paper" if run.config.get("origin") else run.config.get("mixing", "paper")
    return cast(Mixing, method_traits(run.method).mixing if chosen == "auto" else chosen)


def _summary(
    run: RunRecord,
    last: MetricRecord | None,
    index: IndexRecord | None,
    evaluated: dict[str, Any],
    is_fitting: IsFitting,
) -> RunSummary:
    held_out, routing, strict = (evaluated[name] for name in ("held_out", "routing_share", "strict_routing_share"))
    warning = None
    if held_out is not None:
        warning = routing_warning(run.name, routing if strict is None else strict, held_out.tokens)
    stored = {name: getattr(run, name) for name in RunSummary.model_fields if hasattr(run, name)}
    computed = {
        "status": status_of(run, is_fitting),
        "language_model_name": display_name(run.language_model),
        "min_k": run.config.get("min_k"),
        "has_top_k": method_traits(run.method).has_top_k,
        "mixing": mixing_of(run),
        "origin": origin_of(run.config),
        "started_at": aware(run.started_at),
        "updated_at": aware(run.updated_at),
        "last_metric": MetricPoint.of(last) if last else None,
        "indexed_tokens": index.tokens if index else None,
        "active_experts": index.active_experts if index else None,
        "index_command": index_command(run),
        "train_again_command": train_again_command(run.config),
        "routing_warning": warning,
    }
    return RunSummary(**stored | computed | {name: evaluated[name] for name in evaluated if name != "intervals"})


def origin_of(config: Mapping[str, object]) -> str | None:
    """Describe the source of an imported run; None if it was trained here."""
    origin = config.get("origin")
    if not isinstance(origin, Mapping):
        return None
    part = f", {origin['part']}" if origin["part"] else ""
    return f"{origin['format']}: {origin['source']}{part}"


def aware(moment: datetime) -> datetime:
    """Add the time zone: SQLite returns times without one, and they are stored in UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def count_examples(session: Session) -> int:
    # PostgreSQL sums large integers to decimals.
    return int(session.scalar(select(func.sum(IndexRecord.examples))) or 0)


def units_of(session: Session, library: RunLoader, run: str, request: SteeringConfig) -> dict[str, dict[int, float]]:
    """Return the units of a request, see ``edit_units``."""
    for name in dict.fromkeys((run, *(name for name, _ in request.experts(run)))):
        record = find_run(session, name)
        for expert in sorted({expert for each, expert in request.experts(run) if each == name}):
            check_expert(record, expert)

    def saved(name: str) -> Mapping[int, float]:
        with suppress(UserError):  # steering reports the error
            return library.run(name).run.units
        return {}

    return edit_units(request, run, saved, session)


NO_CHAT = "The tokenizer of this language model has no chat template. Use plain text."


def options_of(session: Session, library: RunLoader, record: RunRecord) -> RunOptions:
    """Return the runs that can be combined with a run."""
    known = library.run(record.name)
    run = known.run
    indexed = set(session.scalars(select(IndexRecord.run_id)))
    query = select(RunRecord).where(RunRecord.layer != record.layer).order_by(RunRecord.layer, RunRecord.name)
    layers = tuple(
        LayerRun(name=other.name, layer=other.layer, method=other.method, indexed=other.id in indexed)
        for other in session.scalars(query)
        if _is_compatible(library, run, other.name)
    )
    chat = has_chat_template(known.tokenizer)
    return RunOptions(run=record.name, layers=layers, chat=chat, no_chat=None if chat else NO_CHAT, kinds=None)


def _is_compatible(library: RunLoader, run: Run, other: str) -> bool:
    """Return whether another run replaces another layer of the same language model and has weights."""
    try:
        other_run = Run.load(other, library.data)
        return (
            other_run.config.layer != run.config.layer
            and other_run.language_model_source == run.language_model_source
            and other_run.weights_folder.is_dir()
        )
    except (NotFoundError, UserError):
        return False


def card_figures(session: Session, name: str) -> dict[str, str]:
    """Return measured values with units. Empty if the database does not have the run."""
    run = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if run is None:
        return {}
    figures = {}
    for last in metrics_after(session, run, -1)[-1:]:
        tokens = min(DEAD_AFTER_TOKENS, last.tokens)
        figures["normalised MSE after training (1: predicting zero)"] = f"{last.normalized_mse:.4f}"
        figures[f"experts active on none of the last {tokens:,} training tokens"] = f"{last.dead_share:.1%}"
    if (index := session.get(IndexRecord, run.id)) is not None:
        active = f"{index.active_experts:,} of {run.num_experts:,}"
        figures[f"experts active in {index.tokens:,} indexed tokens"] = active
    result = next((record.result for record in evaluations_of_run(session, run)), {})
    if "routing_share" not in result:
        return figures
    where = f"on {result['tokens']:,} tokens" + (" of the training data" if result["seen_text"] else "")
    delta, explained = result["loss_increase"], result["variance_explained"]
    strict = result.get("strict_routing_share")
    return figures | {
        f"loss increase {where}": f"{delta['value']:.4f} nats (95%: {delta['low']:.4f} to {delta['high']:.4f})",
        f"routing share {where}": f"{result['routing_share']:.3f}",
        **({} if strict is None else {f"strict routing share {where}": f"{strict:.3f}"}),
        **({} if explained is None else {f"variance explained {where}": f"{explained:.1%}"}),
        f"normalised MSE {where} (1: predicting zero)": f"{result['normalized_mse']:.4f}",
        f"mean active experts {where}": f"{result['l0']:.1f}",
    }
