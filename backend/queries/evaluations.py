"""Stored evaluations of a run, and the frontier: those of its MLP's runs at several K."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.queries.report_text import (
    Format,
    cell,
    footnotes,
    in_unit,
    in_units,
    last_part,
    method_title,
    page,
    plural,
    run_page,
    span,
    starred,
    unit_name,
)
from mxd.backend.schemas.runs import Cell, Head, ReportWarning, Row, Section, SectionFigure, Table
from mxd.trainer.config.layer import method_traits
from mxd.trainer.evaluation.evaluation_metrics import TABLE, Metric, Result, measured_in
from mxd.trainer.evaluation.evaluation_metrics import Section as Part
from mxd.trainer.evaluation.seeds import SeedGroup, comparable_settings, group_by_seeds
from mxd.trainer.storage.database.tables import AblationRecord, EvaluationRecord, IndexRecord, RunRecord
from mxd.trainer.utils.bootstrap import Bootstrap, Interval
from mxd.trainer.utils.display import signed


def evaluated(session: Session) -> list[EvaluationRecord]:
    """Return the evaluations of single runs, sorted by dataset, method and K."""
    query = select(EvaluationRecord).join(RunRecord, RunRecord.id == EvaluationRecord.run_id)
    order = (EvaluationRecord.text, RunRecord.method, RunRecord.k, RunRecord.seed, RunRecord.name)
    records = [record for record in session.scalars(query.order_by(*order)) if "warnings" in record.result]
    if not records:
        raise NoEvaluationsError("No run has been evaluated yet. Run 'mxd evaluate NAME --dataset DATASET'.")
    return records


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


def loss_differences(session: Session, own: RunRecord, others: Iterable[RunRecord]) -> dict[str, Interval]:
    """Return other run -> the run's loss increase minus the other's, paired by sequence. Runs without an evaluation on
    the same sequences are left out."""
    names = [own.name, *(other.name for other in others)]
    query = select(EvaluationRecord).where(EvaluationRecord.subject.in_(names))
    evaluations: dict[str, dict[tuple[str, int, int], EvaluationRecord]] = {name: {} for name in names}
    for record in session.scalars(query.order_by(EvaluationRecord.created_at.desc())):
        evaluations[record.subject].setdefault(sample_of(record), record)
    found = {}
    for name in names[1:]:
        for sample, record in evaluations[own.name].items():
            if twin := evaluations[name].get(sample):
                settings = record.settings
                found[name] = _paired(record.sequences, twin.sequences, settings["resamples"], settings["seed"])
                break
    return found


@lru_cache(maxsize=1024)
def _paired(own: bytes, other: bytes, resamples: int, seed: int) -> Interval:
    """Return the mean difference of two evaluations' losses by sequence. Cached: every page polls the runs."""
    own_S, other_S = (np.frombuffer(losses, "<f4").astype(np.float64) for losses in (own, other))
    return _resamples(len(own_S), resamples, seed).mean(own_S - other_S)


_resamples = lru_cache(maxsize=4)(Bootstrap)


def evaluated_mlps(session: Session) -> dict[tuple[str, int], list[RunRecord]]:
    """Return (language model, layer) -> its evaluated runs, newest first."""
    has_evaluation = select(EvaluationRecord.id).where(EvaluationRecord.subject == RunRecord.name).exists()
    query = select(RunRecord).where(has_evaluation).order_by(RunRecord.started_at.desc(), RunRecord.id.desc())
    mlps: dict[tuple[str, int], list[RunRecord]] = {}
    for run in session.scalars(query):
        mlps.setdefault((run.language_model, run.layer), []).append(run)
    return mlps


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
        intro=(
            f"{run.name}, {sample(records[0])}. {_others(session, run, records[0])[0]}"
            f"{units.capitalize()}: {', '.join(links)}.",
            *_inactive_and_dead(session, run, records[0].result),
            *_input_dependence(session, run),
        ),
        warnings=tuple(ReportWarning(**warning) for warning in records[0].result["warnings"]),
        tables=(_facts(session, run, records, bits, "health", "Metrics of health"),),
    )


def _inactive_and_dead(session: Session, run: RunRecord, result: Result) -> tuple[str, ...]:
    """Return a sentence on both shares, which differ by the number of tokens; none without an index."""
    index = session.get(IndexRecord, run.id)
    if index is None:
        return ()
    shares = (result["dead_share"], 1 - index.active_experts / run.num_experts)
    inactive, dead = (f"{share * run.num_experts:,.0f} ({in_unit('share')(share)})" for share in shares)
    return (
        f"Of {run.num_experts:,} {unit_name(run.method)}, {inactive} are inactive: on none of these "
        f"{result['tokens']:,} tokens. {dead} are dead: active on none of {index.tokens:,} indexed tokens.",
    )


def _input_dependence(session: Session, run: RunRecord) -> tuple[str, ...]:
    """Return a sentence on whether what experts write depends on the token; none for features, which are directions."""
    if unit_name(run.method) == "features":
        return ()
    term = "[input dependence](/glossary#input_dependence)"
    query = select(AblationRecord.input_dependence).where(AblationRecord.run_id == run.id)
    values = session.scalars(query).all()
    if not values:
        return (f"The {term} of the experts is not measured yet: run `mxd ablate {run.name}`.",)
    form = in_unit("share")
    return (
        f"The median {term} of {plural(len(values), 'measured expert')} is {form(float(np.median(values)))} "
        f"({span(min(values), max(values), form)}). At 0 %, an expert writes one fixed direction.",
    )


def _others(session: Session, run: RunRecord, record: EvaluationRecord) -> tuple[str, list[EvaluationRecord]]:
    """Return the newest evaluations of other runs on the same sample, and a sentence that counts them: the runs of the
    same MLP or, if there are none, those of other layers."""
    newest: dict[str, tuple[int, EvaluationRecord]] = {}
    query = select(RunRecord.layer, EvaluationRecord).join(RunRecord, RunRecord.name == EvaluationRecord.subject)
    of_model = query.where(RunRecord.language_model == run.language_model, RunRecord.id != run.id)
    for layer, other in session.execute(of_model.order_by(EvaluationRecord.created_at)):
        if sample_of(other) == sample_of(record):
            newest[other.subject] = layer, other
    same = [other for layer, other in newest.values() if layer == run.layer]
    found = same or [other for _, other in newest.values()]
    where = f"layer {run.layer}" if same else "other layers"
    return f"Others: {plural(len(found), 'run')} of {where} on the same text. " if found else "", found


def arrow(better: Literal["lower", "higher"] | None) -> str:
    """Return the second line of a metric's description: the direction that is better, if one is."""
    return f"\n{'↓' if better == 'lower' else '↑'} {better} is better" if better else ""


def _not_evaluated(key: str, title: str, run: RunRecord) -> Section:
    verdict = f"{run.name} has not been evaluated on held-out text."
    return Section(key=key, title=title, verdict=verdict, commands=(evaluate_command(run),))


def faithfulness_sections(session: Session, run: RunRecord, bits: int | None) -> tuple[Section, ...]:
    """Return loss and reconstruction of a run on every text, and the figures of its newest evaluation."""
    records, units = _newest_by_text(session, run), unit_name(run.method)
    metrics, figures = _not_evaluated("faithfulness", "", run), list[SectionFigure]()
    if records:
        table = _facts(session, run, records, bits, "faithfulness", "Faithfulness")
        metrics = Section(
            key="faithfulness",
            title="",
            intro=(
                f"{sample(records[0])}. {_others(session, run, records[0])[0]}95 % intervals: losses resample "
                "sequences, continuations count prompts (Wilson); none covers training seeds.",
            ),
            tables=(table,),
            notes=footnotes(table),
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


def _facts(
    session: Session, run: RunRecord, records: Sequence[EvaluationRecord], bits: int | None, part: Part, title: str
) -> Table:
    """Return the metrics of the newest evaluation, with their values on each text and those of other runs."""

    def result(record: EvaluationRecord) -> Result:  # with what descriptions of the metrics mention
        prompts = min(record.settings["prompts"], record.result["sequences"])
        return {**record.result, "prompts": prompts, "weight_bits": bits}

    def value(metric: Metric, record: EvaluationRecord) -> Cell | None:
        form = in_unit(metric.unit, measured := metric.measured(result(record)))
        found = [metric.measured(result(other)) for other in others[record.text]]
        values = [each["value"] for each in found if each is not None and each["value"] is not None]
        note = f"others {span(min(values), max(values), form)}" if values else metric.norm
        return starred(metric.key, cell(measured, form, note=note))

    newest, others = result(records[0]), {record.text: _others(session, run, record)[1] for record in records}
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
                detail=in_units("; ".join(filter(None, (metric.described(newest), metric.norm))), run.method)
                + arrow(metric.better),
                term=metric.term,
                group=in_units(metric.group, run.method),
                is_baseline=metric.is_baseline,
                cells=tuple(value(metric, record) for record in records),
            )
            for metric, _ in measured_in(newest)
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


# ---------------------------------------------------------------- frontier

NOT_OF_A_LINE = ("k", "language_model_dtype")
FRONTIER_HEIGHT = 340


@dataclass(eq=False)
class Line:
    """Runs of one MLP that differ only in K and seed, or one run evaluated at several K."""

    text: str
    run: str | None
    """Name of the run, if the line has only one."""
    settings: Mapping[str, Any]
    points: list[SeedGroup] = field(default_factory=list)
    """Other seeds are one point with an interval."""

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(record.result["run"] for point in self.points for record in point.records))


def frontier_of(session: Session, run: RunRecord) -> tuple[EvaluationRecord, list[tuple[str, Line]]]:
    """Return the newest evaluation of a run, and the named lines of its MLP on the same sample, the run's own first.
    Runs that were evaluated at several K have lines of their own."""
    newest_one = newest(session, run)
    groups = group_by_seeds((each, session.get_one(RunRecord, each.run_id).config) for each in evaluated(session))
    results = [record.result for group in groups for record in group.records]
    several = {result["run"] for result in results if not is_at_its_own_k(result)}
    lines: dict[str, Line] = {}
    for group in groups:
        settings = comparable_settings(group.settings, NOT_OF_A_LINE)
        is_same_mlp = all(settings[name] == run.config[name] for name in ("language_model", "layer"))
        alone = [(record,) for record in group.records if record.result["run"] in several]
        others = tuple(record for record in group.records if record.result["run"] not in several)
        for records in (*alone, others) if others else alone:
            text, name = records[0].text, None if records is others else records[0].result["run"]
            line = lines.setdefault(f"{text} {name} {settings}", Line(text, name, settings))
            if is_same_mlp and sample_of(records[0]) == sample_of(newest_one):
                line.points.append(SeedGroup(records, group.settings))
    shown = sorted((line for line in lines.values() if line.points), key=lambda line: run.name not in line.runs)
    has_texts = len({line.text for line in shown}) > 1
    named = []
    for line in shown:
        line.points.sort(key=k_of)
        alike = [
            other for other in shown if (other.run, other.settings["method"]) == (line.run, line.settings["method"])
        ]
        name = _line_name(line, alike) + (f", on {last_part(line.text)}" if has_texts else "")
        named.append((line.runs[0] if len(line.runs) == 1 else name, line))
    return newest_one, named


def _line_name(line: Line, alike: Sequence[Line]) -> str:
    """Return method and layer, and the difference from others of the same kind."""
    settings, own = [_flat(other.settings) for other in alike], _flat(line.settings)
    differ = sorted({name for one in settings for name in one if any(it.get(name) != one[name] for it in settings)})
    words = [f"{line.run} at several K" if line.run else f"{own['method']}, layer {own['layer']}"]
    for name in (name for name in differ if name in own):
        words.append(f"{name.replace('_', ' ')} {own[name]:{',' if type(own[name]) is int else ''}}")
    return ", ".join(words)


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten groups of settings; the parents of a run are left out, because their names are too long for a legend."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {inner: setting for inner, setting in value.items() if setting is not None}
        elif isinstance(value, list | tuple):
            flat |= {name: f"{value[0]} …"} if value else {}
        else:
            flat[name] = value
    return flat


ONCE = "the same at every K, so it is stated at the trained one"
MEASURES = (
    Head(key="loss_increase", title="Loss increase", term="loss_increase_of_run"),
    Head(key="difference", title="Loss of the current run minus this"),
    Head(key="normalized_mse", title="Normalised MSE", term="normalised_mse"),
    Head(key="routing_share", title="Routing share", term="routing_share"),
    Head(key="strict_routing_share", title="Strict routing share", detail=ONCE, term="strict_routing_share"),
)


def frontier_section(session: Session, run: RunRecord) -> Section:
    """Return loss and error of the runs of one MLP by K, on the same sequences."""
    try:
        record, lines = frontier_of(session, run)
    except NoEvaluationsError:
        verdict = (
            "Evaluate the runs of a layer on held-out text to compare them here. The command accepts several runs:"
        )
        commands = (evaluate_command(run),)
        return Section(key="frontier", title="Not evaluated yet", verdict=verdict, commands=commands)
    own = lines[0][1]
    own_points = {k_of(point): point for point in own.points}
    rows = [
        _point(name, point, None if line is own else own_points.get(k_of(point)))
        for name, line in lines
        for point in line.points
    ]
    table = Table(
        key="frontier", title="Points of the frontier", corner="Run", columns=MEASURES, rows=tuple(rows), axis="column"
    )
    fewer = sorted({max(1, round(run.k / factor)) for factor in (4, 2, 1)})
    flags = f"--k {','.join(map(str, fewer))} --dataset {record.text} --tokens {record.result['tokens']}"
    fewer_experts = f"To evaluate {run.name} with fewer active experts on the same text, run:"
    has_top_k = method_traits(run.method).has_top_k
    return Section(
        key="frontier",
        title="",
        figure=SectionFigure(
            name="loss-frontier",
            note=f"{sample(record)}; hollow: trained at a larger K, of which only the most active experts are kept",
            height=FRONTIER_HEIGHT,
        ),
        tables=(table,),
        notes=(
            *footnotes(table),
            "95 % intervals, bootstrap over sequences, and over seeds where a point has several. Differences are "
            "paired by sequence and not corrected for the number of K.",
            "Runs that were trained at a small K usually lose less at it than hollow points. Compare losses with care "
            "where the routing shares differ: a dense path that works without routing lowers the loss.",
            *([fewer_experts] if has_top_k else []),
        ),
        commands=(f"mxd evaluate {run.name} {flags}",) if has_top_k else (),
    )


def _point(name: str, point: SeedGroup, own: SeedGroup | None) -> Row:
    k, trained_k = k_of(point), trained_k_of(point)
    title = f"{name}, K {k}" + ("" if k == trained_k else f" (trained at {trained_k})")
    difference = None
    if own is not None:  # paired by sequence; seeds are averaged
        settings = own.records[0].settings
        own_S, point_S = (
            np.mean([np.frombuffer(record.sequences, "<f4").astype(np.float64) for record in each.records], axis=0)
            for each in (own, point)
        )
        difference = Bootstrap(len(own_S), settings["resamples"], settings["seed"]).mean(own_S - point_S)
    measures: dict[str, tuple[Interval | None, Format]] = {
        "loss_increase": (point.loss_increase, in_unit("nats")),
        "difference": (difference, partial(signed, digits=4)),
        "normalized_mse": (point.measure("normalized_mse"), in_unit("plain")),
        "routing_share": (_measured(point, "routing_share"), in_unit("share")),
        "strict_routing_share": (
            _measured(point, "strict_routing_share") if k == trained_k else None,
            in_unit("share"),
        ),
    }
    return Row(
        key=title,
        title=title,
        detail=f"{point.records[0].result['parameters']:,} parameters"
        + (f", {len(point.records)} seeds" if len(point.records) > 1 else ""),
        href=run_page(point.records[0].result["run"]),
        cells=tuple(
            None if interval is None else starred(key, cell(asdict(interval), form))
            for key, (interval, form) in ((head.key, measures[head.key]) for head in MEASURES)
        ),
    )


def _measured(point: SeedGroup, name: str) -> Interval | None:
    """Return a metric, or None where an older evaluation lacks it."""
    if any(name not in record.result["intervals"] for record in point.records):
        return None
    interval = point.measure(name)
    return None if np.isnan(interval.value) else interval


def k_of(point: SeedGroup) -> int:
    """Number of active experts per token at which the point was evaluated."""
    return int(point.records[0].result["k"])


def trained_k_of(point: SeedGroup) -> int:
    """Number of active experts per token in training."""
    result = point.records[0].result
    return int(result.get("trained_k", result["k"]))
