"""The report on a run: what the Evaluate page and ``mxd report`` show, with the verdict on the runs of one MLP.

All thresholds and sentences of the verdict are here; pages and reports show them as they are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.queries.evaluations import (
    FIGURE_HEIGHT,
    arrow,
    evaluate_command,
    evaluated_mlps,
    evaluations_of_run,
    faithfulness_sections,
    frontier_section,
    health_section,
    is_at_its_own_k,
)
from mxd.backend.queries.outcomes import (
    COMPARED,
    MEANS_OVER_EXPERTS,
    RECOVERED,
    Compared,
    ends,
    leader,
    means_over_experts,
    verdict_of,
)
from mxd.backend.queries.probes import benchmark_sections, probing_sections, stored_benchmark
from mxd.backend.queries.report_text import (
    cell,
    footnotes,
    in_unit,
    method_title,
    page,
    plural,
    rounded,
    run_page,
    starred,
    unit_name,
)
from mxd.backend.schemas.runs import Chapter, Head, Report, Row, Section, SectionFigure, Table
from mxd.trainer.config.layer import WEIGHTS_FILE, stored_bits
from mxd.trainer.evaluation.evaluation_metrics import LIMITS, Measured
from mxd.trainer.language_model.sources import display_name
from mxd.trainer.storage.database.tables import MeasurementRecord, RunRecord, SteeringStrengthRecord
from mxd.trainer.storage.run import runs_folder
from mxd.trainer.utils.display import listed

EQUAL_WITHIN = 0.01
"""Parameters and tokens within this ratio count as equal conditions."""

TIED = "Tied: the 95 % interval of the difference contains zero, the dashed line."
COUNTED = (
    f"{TIED} One seed per run: the intervals do not cover training seeds. Loss, KL divergence and the errors depend on "
    "one another, so the counts are no independent votes. Metrics that say nearly the same as one of these rows, such "
    "as top-1 agreement, are only under Faithfulness. Normalised MSE averages relative errors over tokens, so it need "
    "not agree with variance explained."
)


def verdict_sections(session: Session, run: RunRecord, data: Path) -> tuple[Section, ...]:
    """Compare all evaluated runs of a run's MLP, the given one first: question by question, and by metric if any was
    evaluated."""
    same_mlp = RunRecord.language_model == run.language_model, RunRecord.layer == run.layer
    records = session.scalars(select(RunRecord).where(*same_mlp).order_by(RunRecord.method, RunRecord.name)).all()
    records = [run, *(record for record in records if record.id != run.id)]
    compared = []
    for one in records:
        results = [e.result for e in evaluations_of_run(session, one) if "intervals" in e.result]
        # The newest one at the run's own K, on text that it was not trained on if there is one.
        own = sorted((it for it in results if is_at_its_own_k(it)), key=lambda it: bool(it["seen_text"]))
        compared += [Compared(one, result, _metrics(session, one, result)) for result in own[:1]]
    is_evaluated = any(one.run is run for one in compared)
    others = compared[1:]
    benchmark, _ = stored_benchmark(data)
    verdict = verdict_of(session, compared or [Compared(run, {}, {})], benchmark)
    questions = Section(
        key="verdict",
        title="",
        verdict=_sentence(run, compared, verdict.sentence),
        intro=(*(() if others else _other_layers(session, run)), *_conditions(compared)),
        tables=(verdict.table,) if verdict.table else (),
        notes=(
            *(filter(None, [_recovered(compared[0])]) if others else ()),
            *([COUNTED] if verdict.table else []),
            *_not_compared(compared, verdict.missing),
        ),
        commands=() if is_evaluated else (evaluate_command(run),),
    )
    baselines = []
    if verdict.baselines:
        title, unexplained = "Probes beside baselines", () if verdict.table else (TIED,)
        baselines = [Section(key="baselines", title=title, tables=(verdict.baselines,), notes=unexplained)]
    if not compared:
        return questions, *baselines
    mlp = f"Layer {run.layer} of {display_name(run.language_model)}"
    table = _table(compared)
    notes = (f"{mlp}, {compared[0].result['tokens']:,} tokens, 95 % intervals.", *footnotes(table))
    return questions, *baselines, Section(key="metrics", title="", tables=(table,), notes=notes)


def _not_compared(compared: Sequence[Compared], missing: Sequence[str]) -> tuple[str, ...]:
    """Say what has no row."""
    if len(compared) < 2:
        return ()
    runs, what = listed([one.run.name for one in compared]), listed([*missing, "side effects of steering"])
    return (f"Not compared (no two of {runs} have comparable measurements): {what}.",)


def _sentence(run: RunRecord, compared: Sequence[Compared], verdict: str) -> str:
    if not compared:
        return "No run of this layer has been evaluated yet."
    if len(compared) == 1:
        return f"{_recovered(compared[0], is_alone=True)} It is the only evaluated run of layer {run.layer}.".lstrip()
    return verdict or f"No two runs of layer {run.layer} have a loss that was measured on the same text."


def _metrics(session: Session, run: RunRecord, result: Mapping[str, Any]) -> dict[str, Measured]:
    found = {metric.key: metric.measured(result) for metric in COMPARED if metric not in MEANS_OVER_EXPERTS}
    found |= means_over_experts(session, run)
    return {key: measured for key, measured in found.items() if measured is not None and measured["value"] is not None}


def _table(compared: Sequence[Compared]) -> Table:
    columns = tuple(
        Head(
            key=run.name,
            title=run.name,
            detail=f"{title[:1].upper()}{title[1:]}, K {run.k}, {rounded(run.parameters)} parameters, "
            f"{rounded(run.trained_tokens)} tokens",
            href=run_page(run.name),
        )
        for run, _, _ in compared
        for title in [method_title(run.method)]
    )
    rows = tuple(
        Row(
            key=metric.key,
            title=metric.title,
            detail=str(metric.description) + arrow(metric.better),
            term=metric.term,
            cells=tuple(
                starred(metric.key, cell(measured.get(one.run.name), form, is_best=one.run.name == best))
                for one in compared
            ),
        )
        for metric in COMPARED
        for measured in [{one.run.name: one.metrics[metric.key] for one in compared if metric.key in one.metrics}]
        if measured
        for best in [leader(measured, metric.better) if metric.better else None]
        for form in [in_unit(metric.unit, compared[0].metrics.get(metric.key))]
    )
    return Table(key="verdict", title="Metrics by run", corner="Metric", columns=columns, rows=rows, axis="row")


def _recovered(own: Compared, *, is_alone: bool = False) -> str:
    """A sentence on the share of the loss that a run recovers, with what that means if it is the only run."""
    share = cell(own.metrics.get(RECOVERED), in_unit("share"))
    if share is None:  # if it was not measured
        return ""
    interval = f" ({share.interval})" if share.interval else ""
    low, high = ends(own.metrics[RECOVERED])[1:]
    half = LIMITS[RECOVERED]
    part = "most" if low > half else "less than half" if high < half else "about half"
    judged = f" replaces {part} of what the MLP does: it" if is_alone else ""
    return f"{own.run.name}{judged} recovers {share.text}{interval} of the loss that mean-ablating the MLP costs."


def _conditions(compared: Sequence[Compared]) -> tuple[str, ...]:
    """Conditions that differ from the first run's, and evaluations on training text."""
    notes = []
    for run, _, _ in compared[1:]:
        first = compared[0].run
        differences = [
            f"{other:,} {what} against {value:,}"
            for what, value, other in (
                ("parameters", first.parameters, run.parameters),
                ("training tokens", first.trained_tokens, run.trained_tokens),
            )
            if abs(value - other) > EQUAL_WITHIN * max(value, other)
        ]
        if run.k != first.k:
            differences.append(f"K = {run.k} against {first.k}")
        if differences:
            notes.append(f"Not equal conditions: {run.name} has {', '.join(differences)}.")
    seen = [run.name for run, result, _ in compared if result["seen_text"]]
    if seen:
        notes.append(f"Evaluated on training text, so the numbers are too good: {', '.join(seen)}.")
    return tuple(notes)


def _other_layers(session: Session, run: RunRecord) -> tuple[str, ...]:
    """Links to other layers of which several runs were evaluated."""
    layers = evaluated_mlps(session)
    layers.pop((run.language_model, run.layer), None)
    links = []
    for (_, layer), runs in layers.items():
        with_transcoders = " with transcoders" * any("transcoder" in each.method for each in runs)
        if len(runs) > 1:
            links.append(f"[Side by side{with_transcoders}: layer {layer}]({page('evaluate', runs[0].name)})")
    return (" ".join(links),) if links else ()


def run_report(session: Session, run: RunRecord, data: Path) -> Report:
    """Return everything measured of a run. ``data``: the data folder, with the weights and the benchmark."""
    bits = stored_bits(runs_folder(data) / run.name / WEIGHTS_FILE)

    def chapter(title: str, note: str, *sections: Section, is_folded: bool = True) -> Chapter:
        return Chapter(key=title.lower(), title=title, note=note, is_folded=is_folded, sections=sections)

    probed = "single experts against neurons and a random gate, on labelled texts"
    steered = "effect of amplifying experts on generated texts, by strength"
    health = health_section(session, run, bits)
    compared = verdict_sections(session, run, data)
    metrics = [section for section in compared if section.key == "metrics"]
    chapters = (
        chapter(
            "Verdict",
            "the evaluated runs of one MLP",
            *(section for section in compared if section not in metrics),
            is_folded=False,
        ),
        *(chapter("Metrics", "of each run, with intervals", each, is_folded=False) for each in metrics),
        chapter("Health", f"how the {unit_name(run.method)} are used", health, is_folded=False),
        chapter(
            "Faithfulness", f"all metrics of {run.name}, on every text", *faithfulness_sections(session, run, bits)
        ),
        chapter("Frontier", f"loss and error of the runs of layer {run.layer} by K", frontier_section(session, run)),
        chapter("Benchmark", "sparse probes on the data sets of sae-probes", *benchmark_sections(session, run, data)),
        chapter("Probing", probed, *probing_sections(session, run)),
        chapter("Steering", steered, _steering_section(session, run)),
    )
    return Report(run=run.name, chapters=chapters)


def _steering_section(session: Session, run: RunRecord) -> Section:
    table = SteeringStrengthRecord
    amplified = select(func.count(table.expert.distinct())).where(table.run_id == run.id, table.kind == "expert")
    experts = session.scalar(amplified) or 0
    if experts == 0:
        verdict = "The sweep amplifies sampled experts at several strengths, beside random experts and directions."
        commands = (f"mxd evaluate-steering {run.name}",)
        return Section(key="steering", title="Not measured yet", verdict=verdict, commands=commands)
    note = plural(experts, "expert")
    record = session.get(MeasurementRecord, (run.id, "evaluate-steering"))
    if record is not None:  # older sweeps have no record of their settings
        samples, tokens, prompts = (record.settings[name] for name in ("samples", "max_tokens", "prompts"))
        texts = f"{plural(samples, 'sample')} of {tokens:,} tokens for each of {plural(len(prompts), 'prompt')}"
        note = f"{note}, {texts} per strength"
    figure = SectionFigure(name="steering", note=note, height=2 * FIGURE_HEIGHT)
    return Section(key="steering", title="", figure=figure)
