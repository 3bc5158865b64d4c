"""The report on a run: what the Evaluate page and ``mxd report`` show."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.queries.evaluations import FIGURE_HEIGHT, faithfulness_chapter, health_chapter
from mxd.backend.queries.frontier import frontier_chapter
from mxd.backend.queries.probes import benchmark_chapter, probing_chapter
from mxd.backend.queries.report_text import plural
from mxd.backend.queries.verdict import verdict_chapter
from mxd.backend.schemas.report import Chapter, Report, Section, SectionFigure
from mxd.trainer.config.layer import WEIGHTS_FILE, stored_bits
from mxd.trainer.storage.database.tables import MeasurementRecord, RunRecord, SteeringStrengthRecord
from mxd.trainer.storage.run import runs_folder


def run_report(session: Session, run: RunRecord, data: Path) -> Report:
    """Return everything measured of a run. ``data``: the data folder, with the weights and the benchmark."""
    bits = stored_bits(runs_folder(data) / run.name / WEIGHTS_FILE)
    chapters = (
        verdict_chapter(session, run),
        health_chapter(session, run, bits),
        faithfulness_chapter(session, run, bits),
        frontier_chapter(session, run),
        benchmark_chapter(session, run, data),
        probing_chapter(session, run),
        _steering_chapter(session, run),
    )
    return Report(run=run.name, chapters=chapters)


def _steering_chapter(session: Session, run: RunRecord) -> Chapter:
    table = SteeringStrengthRecord
    amplified = select(func.count(table.expert.distinct())).where(table.run_id == run.id, table.kind == "expert")
    experts = session.scalar(amplified) or 0
    if experts == 0:
        section = Section(
            key="steering",
            title="Not measured yet",
            verdict="The sweep amplifies sampled experts at several strengths, beside random experts and directions.",
            commands=(f"mxd evaluate-steering {run.name}",),
        )
    else:
        note = plural(experts, "expert")
        record = session.get(MeasurementRecord, (run.id, "evaluate-steering"))
        if record is not None:  # older sweeps have no record of their settings
            samples, tokens, prompts = (record.settings[name] for name in ("samples", "max_tokens", "prompts"))
            texts = f"{plural(samples, 'sample')} of {tokens:,} tokens for each of {plural(len(prompts), 'prompt')}"
            note = f"{note}, {texts} per strength"
        figure = SectionFigure(name="steering", note=note, height=2 * FIGURE_HEIGHT)
        section = Section(key="steering", title="", figure=figure)
    return Chapter(
        key="steering",
        title="Steering",
        note="effect of amplifying experts on generated texts, by strength",
        is_folded=True,
        sections=(section,),
    )
