"""Experts of a run by number: their rows and records, one expert in full, its effects and its matches in other runs."""

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

import numpy as np
from sqlalchemy import Row, case, func, select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import NoteRecord, lists_with, tags_of
from mxd.backend.database.engine import among
from mxd.backend.errors import ExpertNotFoundError
from mxd.backend.inference.run_loader import Vocabulary, fold
from mxd.backend.queries.automatic_labels import (
    FEATURES,
    QUOTED,
    accuracy_interval,
    automatic_labels,
    both_labels,
    shown_labels,
)
from mxd.backend.queries.coactivation import MIN_EVENTS
from mxd.backend.queries.runs import check_expert, find_index
from mxd.backend.schemas.experts import (
    Ablation,
    ActivationBin,
    ExpertDetail,
    ExpertRecurrence,
    ExpertRow,
    RecurrenceMatch,
    SharedTokens,
    SimilarExpert,
    TokenCount,
)
from mxd.trainer.analysis.labelling.features import label_matches
from mxd.trainer.analysis.results import RECURRENCE_COMMAND, TokenEffect, is_found, stored_matches
from mxd.trainer.config.analysis import RecurrenceConfig
from mxd.trainer.inference.results import SMALL_KL
from mxd.trainer.inference.units import column_values, random_experts
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS, ExpertRecord
from mxd.trainer.storage.database.tables import (
    AblationRecord,
    ExampleRecord,
    IndexRecord,
    MeasurementRecord,
    RecurrenceRecord,
    RunRecord,
    SequenceRecord,
)


def expert_ablation(session: Session, run: RunRecord, expert: int, vocabulary: Vocabulary) -> Ablation | None:
    record = session.get(AblationRecord, (run.id, expert))
    if record is None:
        return None
    other = session.get(AblationRecord, (record.run_id, record.random_expert))
    tokens = {side: _token_effects(getattr(record, side), vocabulary) for side in ("promoted", "suppressed")}
    return Ablation(
        **{name: getattr(record, name) for name in Ablation.model_fields if hasattr(record, name)} | tokens,
        random_loss_increase=None if other is None else other.loss_increase,
        random_output_share=None if other is None else other.output_share,
    )


STRONGEST_EXAMPLES = 8
"""Strongest examples among which are those from which it is computed what an expert writes."""
WRITTEN_EXAMPLES = 3
"""Number of these: few, and those with the fewest tokens before the peak, so that it takes less than a second."""

ExampleTokens = tuple[list[int], int]
"""Token ids of a sequence, and the position of an active token."""


def strongest_examples(session: Session, run: RunRecord, expert: int) -> list[ExampleTokens]:
    """Return the sequences and positions of an expert's strongest examples; empty for a dead expert."""
    query = (
        select(SequenceRecord.token_ids, ExampleRecord.position)
        .join(
            SequenceRecord,
            (SequenceRecord.run_id == ExampleRecord.run_id) & (SequenceRecord.sequence == ExampleRecord.sequence),
        )
        .where(ExampleRecord.run_id == run.id, ExampleRecord.expert == expert, ExampleRecord.bin == 0)
        .order_by(ExampleRecord.rank)
        .limit(STRONGEST_EXAMPLES)
    )
    return [(np.frombuffer(ids, "<u4").astype(np.int64).tolist(), position) for ids, position in session.execute(query)]


def written_examples(session: Session, run: RunRecord, expert: int) -> list[ExampleTokens]:
    """Return those of the strongest examples from which it is computed what an expert writes."""
    return sorted(strongest_examples(session, run, expert), key=lambda example: example[1])[:WRITTEN_EXAMPLES]


def most_promoted(session: Session, run: RunRecord, experts: Collection[int], vocabulary: Vocabulary) -> dict[int, str]:
    """Return the token that each expert promotes most, for those that were measured."""
    chosen = AblationRecord.run_id == run.id, AblationRecord.expert.in_(experts)
    rows = session.execute(select(AblationRecord.expert, AblationRecord.promoted).where(*chosen))
    return {expert: vocabulary.name(int(promoted[0][0])) for expert, promoted in rows if promoted}


def naming(
    session: Session, run: RunRecord, experts: Collection[int], texts: Collection[str], vocabulary: Vocabulary
) -> set[int]:
    """Return the experts that name one of ``texts``: as a word of a rule-based label, or as a promoted token."""
    folded = set(map(fold, texts))
    shown = shown_labels(session, run, experts)
    names = {expert: QUOTED.findall(each.label) for expert, each in shown.items() if each.labeller == FEATURES}
    chosen = AblationRecord.run_id == run.id, AblationRecord.expert.in_(experts)
    for expert, promoted in session.execute(select(AblationRecord.expert, AblationRecord.promoted).where(*chosen)):
        names[expert] = [*names.get(expert, ()), *(vocabulary.name(int(token)) for token, _ in promoted)]
    return {expert for expert, words in names.items() if folded.intersection(map(fold, words))}


def _token_effects(pairs: Sequence[Sequence[float]], vocabulary: Vocabulary) -> tuple[TokenEffect, ...]:
    return tuple(TokenEffect(id=int(token), text=vocabulary.name(int(token)), change=change) for token, change in pairs)


ROW_COLUMNS = [column for column in EXPERT_COLUMNS if column.measured_by in ("index", "ablate")]
"""Columns of a row that follow from the expert's record."""
COMPARED = [column.key for column in EXPERT_COLUMNS if column.measured_by == "recurrence"]


def described(
    session: Session, run: RunRecord, records: Sequence[ExpertRecord], vocabulary: Vocabulary
) -> list[dict[str, Any]]:
    """Return ``ExpertRow`` dicts: validating every value of a table would be slow."""
    ids = [record.expert for record in records]
    labels, tagged = both_labels(session, run, ids), tags_of(session, run.name, ids)
    recurrences = found_again(session, run.id, ids)
    rows = []
    for record in records:
        found = recurrences.get(record.expert)
        # A measured output_share is above 0.
        row = {
            column.key: None if column.measured_by == "ablate" and not record.output_share else column.of(record)
            for column in ROW_COLUMNS
        }
        row |= {key: None if found is None else getattr(found, key) for key in COMPARED}
        of_expert = labels[record.expert]
        row |= {"label": of_expert["label"], "tags": tagged.get(record.expert, ()), "automatic": of_expert["automatic"]}
        row["top_tokens"] = _top_tokens(record, vocabulary)
        rows.append(row)
    return rows


def rows_of(session: Session, run: RunRecord, experts: Collection[int], vocabulary: Vocabulary) -> dict[int, ExpertRow]:
    records = list(known(session, run, experts).values())
    rows = (ExpertRow.model_validate(row) for row in described(session, run, records, vocabulary))
    return {row.expert: row for row in rows}


def top_tokens(record: ExpertRecord, vocabulary: Vocabulary) -> tuple[TokenCount, ...]:
    return tuple(map(TokenCount.model_validate, _top_tokens(record, vocabulary)))


def _top_tokens(record: ExpertRecord, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    active, texts = max(record.active_tokens, 1), vocabulary.names([token for token, _ in record.top_tokens])
    return [
        {"id": token, "text": text, "count": count, "share": count / active}
        for (token, count), text in zip(record.top_tokens, texts, strict=True)
    ]


def find_expert(session: Session, run: RunRecord, expert: int) -> ExpertRecord:
    """Return the statistics of an expert."""
    check_expert(run, expert)
    record = session.get(ExpertRecord, (run.id, expert))
    if record is None:
        find_index(session, run)
        raise ExpertNotFoundError(f"Expert {expert} is missing from the index of '{run.name}'. Index the run again.")
    return record


def with_names(
    session: Session,
    run: RunRecord,
    similar: Sequence[tuple[int, float] | tuple[int, float, SharedTokens]],
    vocabulary: Vocabulary,
) -> tuple[SimilarExpert, ...]:
    """Return similar experts with labels and top tokens; without an index, labels only."""
    ids = [expert for expert, *_ in similar]
    labels, records = both_labels(session, run, ids), known(session, run, ids)
    return tuple(
        SimilarExpert(
            expert=expert,
            **labels[expert],
            similarity=cosine,
            top_tokens=top_tokens(records[expert], vocabulary) if expert in records else (),
            shared=shared[0] if shared else None,
        )
        for expert, cosine, *shared in similar
    )


def known(session: Session, run: RunRecord, experts: Collection[int]) -> dict[int, ExpertRecord]:
    """Return the statistics of those of ``experts`` that are indexed."""
    statement = select(ExpertRecord).where(ExpertRecord.run_id == run.id, among(session, ExpertRecord.expert, experts))
    return {record.expert: record for record in session.scalars(statement)}


def expert_detail(session: Session, run: RunRecord, expert: int, vocabulary: Vocabulary) -> ExpertDetail:
    """Return an expert with its bins, note, lists, measured effects and active neighbours."""
    record = find_expert(session, run, expert)
    row = rows_of(session, run, [expert], vocabulary)[expert]
    automatic = automatic_labels(session, run, [expert]).get(expert, ())
    matches = _label_matches(session, run, expert, automatic[0].label, vocabulary) if automatic else []
    active, number = [ExpertRecord.run_id == run.id, ExpertRecord.active_tokens > 0], ExpertRecord.expert
    before = select(number).where(*active, number < expert).order_by(number.desc()).limit(1)
    after = select(number).where(*active, number > expert).order_by(number).limit(1)
    note = session.get(NoteRecord, (run.name, expert))
    return ExpertDetail(
        row=row,
        note=note and note.note,
        lists=lists_with(session, run.name, expert),
        previous=session.scalar(before),
        next=session.scalar(after),
        bins=_bins(session, record),
        automatic_labels=automatic,
        label_matches=sum(matches) if matches else None,
        label_examples=len(matches),
        accuracy_interval=accuracy_interval(automatic[0].model_dump(), record.density) if automatic else None,
        recurrence=expert_recurrence(session, run, expert),
        ablation=expert_ablation(session, run, expert, vocabulary),
        random_expert=next(iter(random_experts(column_values(session, run, ExpertRecord.density), expert)), None),
        few_tokens=record.active_tokens < MIN_EVENTS,
        # Steerability is the KL at one unit, and the KL grows with the square of the strength.
        small_below=math.sqrt(SMALL_KL / record.steerability) if record.steerability else None,
    )


def _label_matches(session: Session, run: RunRecord, expert: int, label: str, vocabulary: Vocabulary) -> list[bool]:
    """Return for each of the strongest examples whether a label matches its peak; nothing of labels without a rule."""
    examples = strongest_examples(session, run, expert)
    matches = (label_matches(label, vocabulary.texts(ids), position) for ids, position in examples)
    return [match for match in matches if match is not None]


def _bins(session: Session, record: ExpertRecord) -> tuple[ActivationBin, ...]:
    """Return the top examples and the activation bins. The highest bin with active tokens ends at the maximum."""
    bin_column, activation = ExampleRecord.bin, ExampleRecord.activation
    stored = (
        select(bin_column, func.count(), func.min(activation), func.max(activation))
        .where(ExampleRecord.run_id == record.run_id, ExampleRecord.expert == record.expert)
        .group_by(bin_column)
    )
    stored_bins = {number: (count, low, high) for number, count, low, high in session.execute(stored)}
    active = max(record.active_tokens, 1)
    count, low, high = stored_bins.get(0, (0, 0.0, 0.0))
    top = ActivationBin(bin=0, low=low, high=high, active_tokens=count, share=count / active, examples=count)
    return (
        top,
        *(
            ActivationBin(
                bin=number,
                low=low,
                high=min(high, record.max_activation) if tokens else high,
                active_tokens=int(tokens),
                share=tokens / active,
                examples=stored_bins.get(number, (0,))[0],
            )
            for number, (low, high, tokens) in enumerate(record.bins, start=1)
        ),
    )


def found_again(session: Session, run_id: int, experts: Collection[int] | None = None) -> dict[int, Row[Any]]:
    """Return the recurrence of those of ``experts`` (all, if None) that were measured: in how many other runs each was
    found again, the number of these runs, and the mean over them of the cosine with the best match."""
    table = RecurrenceRecord
    chosen = [] if experts is None else [among(session, table.expert, experts)]
    columns = (
        func.sum(case((is_found(), 1), else_=0)).label("recurrence"),
        func.count().label("compared_runs"),
        func.avg(table.firing_cosine).label("firing_cosine"),
    )
    query = select(table.expert, *columns).where(table.run_id == run_id, *chosen).group_by(table.expert)
    return {row.expert: row for row in session.execute(query)}


def expert_recurrence(session: Session, run: RunRecord, expert: int) -> ExpertRecurrence | None:
    """Return the matches of an expert in other runs; None if the run was not compared with others."""
    measurement = session.get(MeasurementRecord, (run.id, RECURRENCE_COMMAND))
    if measurement is None:
        return None
    config = RecurrenceConfig.model_validate(measurement.settings)
    matches = stored_matches(session, run.id, expert)
    names = [match.run for match in matches]
    indexed = set(
        session.scalars(
            select(RunRecord.name)
            .join(IndexRecord, IndexRecord.run_id == RunRecord.id)
            .where(RunRecord.name.in_(names))
        )
    )
    return ExpertRecurrence(
        text=PurePath(config.text.dataset).name,
        tokens=config.tokens,
        min_tokens=config.min_tokens,
        matches=tuple(
            RecurrenceMatch(**asdict(match), is_found=match.found, is_indexed=match.run in indexed) for match in matches
        ),
    )
