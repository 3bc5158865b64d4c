"""Stored results of single-expert probes and of ``mxd benchmark``."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.queries.report_text import cell, last_part, page, plural, run_page, unit_name
from mxd.backend.schemas.runs import Cell, Head, Row, Section, SectionFigure, Table
from mxd.trainer.config.analysis import BENCHMARK_FOLDER, BENCHMARK_SUMMARY
from mxd.trainer.evaluation.benchmark_results import Benchmark
from mxd.trainer.evaluation.evaluation_metrics import Measured
from mxd.trainer.language_model.sources import display_name
from mxd.trainer.storage.database.tables import ProbeRecord, RunRecord
from mxd.trainer.utils.bootstrap import NORMAL_97_5
from mxd.trainer.utils.display import fixed, signed
from mxd.trainer.utils.files import read_json

Result = Mapping[str, Any]
BISECTIONS = 40
MIN_CLASSES = 5
"""With fewer classes, an interval over classes says little."""


def probes_of(session: Session, run: RunRecord) -> list[ProbeRecord]:
    query = select(ProbeRecord).where(ProbeRecord.run_id == run.id)
    return list(session.scalars(query.order_by(ProbeRecord.labels, ProbeRecord.level)))


COLUMNS = (
    ("experts", "top1", "Best expert"),
    ("experts", "top5", "Best 5 experts"),
    ("neurons", "top1", "Best neuron"),
    ("random-gate", "top1", "Random gate"),
)
"""Probed kind of units, number of units, and heading."""
BASELINES = {"neurons": "best MLP neuron", "random-gate": "best unit of a random gate"}
# F1 is last: it selects the units, and it depends on the threshold.
METRICS = {"roc_auc": "ROC-AUC", "balanced_accuracy": "Balanced accuracy", "f1": "F1"}
CHANCE = 0.5
PANELS_PER_ROW = 3
PANEL_HEIGHT, PANEL_MARGINS = 168, 96


def probing_sections(session: Session, run: RunRecord) -> tuple[Section, ...]:
    """Return how well single experts separate labelled texts, beside the best neuron and a random gate."""
    records = probes_of(session, run)
    if not records:
        section = Section(
            key="not-probed",
            title="No labels of your own have been probed yet",
            verdict="A probe measures how well single experts separate classes of text, for example languages or "
            "topics. It needs labelled texts, a JSONL file with a text and a label per line. If the label has "
            "another name, pass it with --label-column.",
            notes=('A line of the file: {"text": "Preheat the oven to 180 degrees.", "label": "recipe"}',),
            commands=(f"mxd probe {run.name} --labels FILE.jsonl",),
        )
        return (section,)
    panels = sum(len(record.result["kinds"]["experts"]["classes"]) for record in records)
    height = PANEL_MARGINS + PANEL_HEIGHT * -(-panels // PANELS_PER_ROW)
    note = "activations of the best expert of each class"
    figure = SectionFigure(name="probe-activations", note=note, height=height)
    tables = [section for record in records for section in _probe_sections(run, record)]
    return (*tables, Section(key="probe-activations", title="", figure=figure))


def _probe_sections(run: RunRecord, record: ProbeRecord) -> tuple[Section, Section]:
    kinds = {kind: found["classes"] for kind, found in record.result["kinds"].items()}
    classes: Mapping[str, Result] = kinds["experts"]
    level, file = record.result["level"], last_part(record.labels)
    tested = sum(_test_sizes(next(iter(classes.values()))))
    differences = Table(
        key="differences",
        title=f"Differences on {file}",
        corner="Mean over classes",
        columns=tuple(Head(key=metric, title=title, term=metric) for metric, title in METRICS.items()),
        rows=tuple(
            Row(
                key=kind,
                title=f"Best expert − {title}",
                cells=tuple(_mean_difference(kinds, kind, metric) for metric in METRICS),
            )
            for kind, title in BASELINES.items()
        ),
        axis="table",
        reference=0,
    )
    best = {name: found["expert"] for name, found in classes.items()}
    links = {name: f"[{expert}]({page(f'experts/{expert}', run.name)})" for name, expert in best.items()}
    scores = tuple(
        Table(
            key=metric,
            title=title,
            corner=f"Class, {title}",
            columns=tuple(Head(key=f"{kind} {units}", title=heading) for kind, units, heading in COLUMNS),
            rows=tuple(
                Row(
                    key=name,
                    title=name,
                    detail=f"{_test_sizes(found)[0]:,} of {found['examples']:,} {level}s in the test split",
                    cells=tuple(
                        cell(
                            _score(kinds[kind][name], units, metric),
                            partial(fixed, digits=3),
                            note=links[name] if (kind, units) == COLUMNS[0][:2] else "",
                        )
                        for kind, units, _ in COLUMNS
                    ),
                )
                for name, found in classes.items()
            ),
            axis="table",
            reference=None if metric == "f1" else CHANCE,
        )
        for metric, title in METRICS.items()
    )
    sample = f"{record.result['examples']:,} {level}s of {file} in {plural(len(classes), 'class')}"
    key = f"{record.labels} {level}"
    return (
        Section(
            key=f"{key}: differences",
            title=f"Best expert against baselines on {file}",
            intro=(sample,),
            tables=(differences,),
        ),
        Section(key=key, title=f"Scores of each class on {file}", tables=scores, notes=(_method(run, level, tested),)),
    )


def _method(run: RunRecord, level: str, tested: int) -> str:
    units = f"{run.num_experts:,}"
    neurons = "" if run.config.get("origin") else f", {run.hidden_width:,} neurons"
    where = ", averaged over the text" if level == "text" else " at single tokens"
    return (
        "Each class is probed against all others, with a logistic regression on one unit’s activation"
        f"{where}. The unit with the highest [F1](/glossary#f1) on validation {level}s is scored once on {tested:,} "
        f"test {level}s. It is selected among {units} {unit_name(run.method)}{neurons} and {units} units of the random "
        "gate; a larger pool has an advantage at equal quality. [ROC-AUC](/glossary#roc_auc) does not depend on a "
        "threshold; chance is 0.5, as for [balanced accuracy](/glossary#balanced_accuracy). Intervals of F1 are "
        f"bootstrapped over test {level}s, those of ROC-AUC follow from the standard error of Hanley and McNeil "
        f"(1982). Differences have t intervals over classes, which share their test {level}s. No interval is corrected "
        "for the number of classes."
    )


def _score(probed: Result, units: str, metric: str) -> Measured:
    """A score with its 95 % interval; balanced accuracy has none."""
    score = probed[units]
    low, high = {
        "roc_auc": roc_auc_interval(score["roc_auc"], *_test_sizes(probed)),
        "balanced_accuracy": (None, None),
        "f1": (score["f1_low"], score["f1_high"]),
    }[metric]
    return {"value": score[metric], "low": low, "high": high}


def _mean_difference(kinds: Mapping[str, Mapping[str, Result]], baseline: str, metric: str) -> Cell | None:
    """Score of the best expert minus that of a baseline, mean over classes, with the t interval over classes."""
    pairs = [
        (probed["top1"][metric], kinds[baseline][name]["top1"][metric]) for name, probed in kinds["experts"].items()
    ]
    values = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
    if not values:
        return None
    measured: dict[str, float] = {"value": statistics.fmean(values)}
    if len(values) >= MIN_CLASSES:
        from scipy.special import stdtrit

        margin = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / math.sqrt(len(values))
        measured |= {"low": measured["value"] - margin, "high": measured["value"] + margin}
    lost = sum(value < 0 for value in values)
    return cell(measured, partial(signed, digits=3), note=f"baseline higher in {lost} of {len(values)}")


def _test_sizes(probed: Result) -> tuple[int, int]:
    """Numbers of test texts of the class and of all others."""
    return sum(probed["class_counts"]), sum(probed["other_counts"])


def roc_auc_interval(area: float | None, positives: int, negatives: int) -> tuple[float | None, float | None]:
    """95 % interval of an area under the ROC curve; stored probes have no bootstrap of it. Its ends are the true areas
    from which the measured one is 1.96 standard errors away, as in Wilson's interval of a share. Close to 1, an
    interval of equal width on both sides is too narrow."""
    if area is None:
        return None, None
    ends = []
    for outside in (0.0, 1.0):
        inside = area
        for _ in range(BISECTIONS):
            middle = (inside + outside) / 2
            # Standard error of the area under an ROC curve, after Hanley and McNeil (1982).
            of_positives, of_negatives = middle / (2 - middle) - middle**2, 2 * middle**2 / (1 + middle) - middle**2
            variance = middle * (1 - middle) + (positives - 1) * of_positives + (negatives - 1) * of_negatives
            is_inside = abs(area - middle) <= NORMAL_97_5 * math.sqrt(variance / (positives * negatives))
            inside, outside = (middle, outside) if is_inside else (inside, middle)
        ends.append((inside + outside) / 2)
    return ends[0], ends[1]


_BENCHMARK = TypeAdapter(Benchmark)
"""Built at import: two requests that build it at the same time can fail."""


def stored_benchmark(data: Path) -> tuple[Benchmark | None, str | None]:
    """Return the benchmark of a data folder, if there is one, and why it cannot be read."""
    path = data / BENCHMARK_FOLDER / BENCHMARK_SUMMARY
    try:
        return _BENCHMARK.validate_python(read_json(path)), None
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc'])) or 'the content'}: {first['msg']}"
        return None, (
            f"{path.name} in {BENCHMARK_FOLDER} is not a summary of a benchmark: {reason}. Run 'mxd benchmark' again "
            "to replace it."
        )


BENCHMARK_METRIC = "auc"
SAE_PROBES = "https://github.com/sae-probes/sae-probes"
SAE_PROBES_PAPER = "https://arxiv.org/abs/2502.16681"


def benchmark_sections(session: Session, run: RunRecord, data: Path) -> tuple[Section, ...]:
    """Return the scores of runs, neurons and an untrained gate on the data sets of sae-probes."""
    benchmark, problem = stored_benchmark(data)
    if problem is not None:
        return (Section(key="benchmark", title="The benchmark cannot be read", verdict=problem),)
    if benchmark is None:
        same_mlp = RunRecord.language_model == run.language_model, RunRecord.layer == run.layer
        others = session.scalars(select(RunRecord.name).where(*same_mlp, RunRecord.id != run.id))
        unmeasured = Section(
            key="benchmark",
            title="No benchmark yet",
            verdict="The benchmark measures how well a few experts separate classes of text, on 113 data sets made by "
            "others. It compares the first run with the other runs, with the neurons of the MLP, and with an untrained "
            "gate.",
            notes=(
                "Without the two options, it uses up to 5,000 texts per data set and 1,024 tokens per text. An "
                "interrupted benchmark continues with the same command.",
            ),
            commands=(f"mxd benchmark {' '.join([run.name, *others])} --texts 300 --tokens 64",),
        )
        return (unmeasured,)
    subjects = list(dict.fromkeys(score.subject for score in benchmark.scores))
    named = select(RunRecord).where(RunRecord.name.in_(subjects))
    runs = {record.name: record for record in session.scalars(named)}
    scores = {(one.subject, one.units): one for one in benchmark.scores if one.metric == BENCHMARK_METRIC}
    differences = {(one.subject, one.units): one for one in benchmark.differences if one.metric == BENCHMARK_METRIC}
    datasets = len(benchmark.datasets)

    def section(
        key: str, title: str, names: Sequence[str], cells: Callable[[str, int], Cell | None], reference: float
    ) -> Section:
        table = Table(
            key=key,
            title=title,
            corner=title,
            columns=tuple(Head(key=str(count), title=plural(count, "unit")) for count in benchmark.settings.units),
            rows=tuple(
                Row(
                    key=name,
                    title=name,
                    href=run_page(name) if name in runs else None,
                    cells=tuple(cells(name, count) for count in benchmark.settings.units),
                )
                for name in names
            ),
            axis="table",
            reference=reference,
        )
        return Section(key=key, title="", tables=(table,))

    def difference(name: str, units: int) -> Cell | None:
        found = differences.get((name, units))
        if found is None:
            return None
        note = f"higher on {found.better} of {datasets}".replace(" ", "\N{NO-BREAK SPACE}")
        return cell(asdict(found.mean), partial(signed, digits=3), note=note)

    def score(name: str, units: int) -> Cell | None:
        found = scores.get((name, units))
        return None if found is None else cell(asdict(found.mean), partial(fixed, digits=3))

    first = subjects[0] if subjects else ""
    return (
        section("differences", f"Differences in ROC-AUC: {first} minus each", subjects[1:], difference, 0),
        section("scores", "Scores: mean ROC-AUC", subjects, score, CHANCE).model_copy(
            update={"notes": _benchmark_notes(benchmark, [runs[name] for name in subjects if name in runs])}
        ),
    )


def _benchmark_notes(benchmark: Benchmark, runs: Sequence[RunRecord]) -> tuple[str, ...]:
    settings = benchmark.settings
    pools = ", ".join(f"{run.num_experts:,} {unit_name(run.method)} of {run.name}" for run in runs)
    seeds = ", ".join(map(str, settings.seeds))
    selected = f" Units are selected among {pools}; a larger pool has an advantage at equal quality." if pools else ""
    return (
        f"[sae-probes]({SAE_PROBES}) {settings.sae_probes} ([paper]({SAE_PROBES_PAPER})) has 113 data sets with texts "
        "of two classes. A probe selects the units whose class means differ most, and fits a logistic regression with "
        "an L1 penalty to them. Its [ROC-AUC](/glossary#roc_auc) is measured on test texts. Here: "
        f"{plural(len(benchmark.datasets), 'data set')} with {number_range(benchmark.training_texts)} training and "
        f"{number_range(benchmark.test_texts)} test texts each, seeds {seeds}, last token of at most "
        f"{settings.tokens:,} tokens, language model {display_name(settings.language_model)}.{selected}",
        "95 % intervals are bootstrapped over data sets, and not corrected for the number of comparisons. Differences "
        "are paired by data set.",
        f"{plural(len(benchmark.datasets), 'data set')}: {', '.join(benchmark.datasets)}.",
    )


def number_range(ends: tuple[int, int]) -> str:
    """Return the smallest and the largest number, or one if they are equal."""
    low, high = ends
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
