"""Is a store whole: what the database says of itself, counts that must agree, and a sample of contexts unpacked.

Nothing is written. Labels, notes, tags and lists of a run that is gone are no finding: they are kept by its name.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from sqlalchemy import Row, exists, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from backend.queries.contexts import WITH_TOKENS
from trainer.errors import DamagedStoreError
from trainer.packing import unpack, unpack_active
from trainer.readers import one_line
from trainer.search_text import count_documents
from trainer.store import ContextRecord, ExpertRecord, IndexRecord, RunRecord, SequenceRecord
from trainer.tables import RoutedRecord

MOST_SAID = 20
"""Findings of the database about itself; a damaged file may have thousands."""
USAGE_ERROR = 1e-9


def check_store(session: Session, sample: int) -> Iterator[str]:
    """What is wrong, a sentence each; ``sample`` experts of each run are looked at in full."""
    try:
        yield from _found(session, sample)
    except (DBAPIError, DamagedStoreError) as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise  # its server is gone, and nothing is known of the store
        yield f"The rest cannot be read, as the store is damaged ({one_line(error)})."


def _found(session: Session, sample: int) -> Iterator[str]:
    if session.get_bind().dialect.name == "sqlite":
        yield from _sqlite(session)
    for index, run in session.execute(select(IndexRecord, RunRecord).join(RunRecord)).all():
        for finding in (*_counts(session, run, index), *_orphans(session, run), *_sampled(session, run, index, sample)):
            yield f"{run.name}: {finding}"


def _sqlite(session: Session) -> Iterator[str]:
    connection = session.connection()
    for (said,) in connection.exec_driver_sql(f"PRAGMA integrity_check({MOST_SAID})"):
        if said != "ok":
            yield f"SQLite finds the file damaged: {said}."
    for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check").fetchmany(MOST_SAID):
        yield f"Row {row} of {table} belongs to a row of {parent} that is not there."


def _counts(session: Session, run: RunRecord, index: IndexRecord) -> Iterator[str]:
    def count(table: type[Any], *conditions: Any) -> int:
        return session.scalar(select(func.count()).select_from(table).where(table.run_id == run.id, *conditions)) or 0

    shown = ContextRecord.interval == 0
    searchable = select(func.count(ContextRecord.expert.distinct())).where(ContextRecord.run_id == run.id, shown)
    agreeing = (
        ("contexts", index.contexts, count(ContextRecord)),
        ("experts", run.num_experts, count(ExpertRecord)),
        ("active experts", index.experts_active, count(ExpertRecord, ExpertRecord.active_tokens > 0)),
        ("searchable experts", session.scalar(searchable), count_documents(session, run.id)),
    )
    for what, said, found in agreeing:
        if said != found:
            yield f"there should be {said} {what}, and there are {found}."
    off = func.abs(ExpertRecord.usage * index.tokens - ExpertRecord.active_tokens) > USAGE_ERROR * index.tokens
    if wrong := count(ExpertRecord, off):
        yield f"the usage of {wrong} experts is not their share of the {index.tokens} indexed tokens."


def _orphans(session: Session, run: RunRecord) -> Iterator[str]:
    for what, table in (("contexts", ContextRecord), ("routed sequences", RoutedRecord)):
        kept = exists().where(SequenceRecord.run_id == run.id, SequenceRecord.sequence == table.sequence)
        wanted = select(func.count()).select_from(table).where(table.run_id == run.id, ~kept)
        if missing := session.scalar(wanted):
            yield f"{missing} {what} are of a token sequence that is not stored."
    known = exists().where(ExpertRecord.run_id == run.id, ExpertRecord.expert == ContextRecord.expert)
    wanted = select(func.count()).select_from(ContextRecord).where(ContextRecord.run_id == run.id, ~known)
    if missing := session.scalar(wanted):
        yield f"{missing} contexts are of an expert without statistics."


def _sampled(session: Session, run: RunRecord, index: IndexRecord, sample: int) -> Iterator[str]:
    """Experts drawn anew each time, so that checking often looks at all of them."""
    active = select(ExpertRecord.expert).where(ExpertRecord.run_id == run.id, ExpertRecord.active_tokens > 0)
    everyone = session.scalars(active).all()
    for expert in sorted(random.sample(everyone, min(sample, len(everyone)))):
        record = session.get_one(ExpertRecord, (run.id, expert))
        # What is packed comes as it is on disk: damaged, it has to be said and not to stop everything.
        of_expert = ContextRecord.run_id == run.id, ContextRecord.expert == expert
        ordered = WITH_TOKENS.where(*of_expert).order_by(ContextRecord.interval, ContextRecord.rank)
        rows = list(session.execute(ordered))
        for finding in (*_statistics(record), *_contexts(record, index, rows)):
            yield f"expert {expert}: {finding}"
        session.expunge(record)


def _statistics(record: ExpertRecord) -> Iterator[str]:
    counted = {sum(record.histogram), sum(int(active) for *_, active in record.intervals)}
    if counted != {record.active_tokens}:
        yield f"its histogram and intervals do not add up to the {record.active_tokens} tokens that it is active on."


def _contexts(record: ExpertRecord, index: IndexRecord, rows: list[Any]) -> Iterator[str]:
    by_interval: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        by_interval[row.interval].append(row)
        if wrong := _wrong(record, index, row):
            yield f"context {row.rank} of interval {row.interval} {wrong}."
    for interval, ordered in by_interval.items():
        if [row.rank for row in ordered] != list(range(len(ordered))):
            yield f"ranks of interval {interval} are not 0 to {len(ordered) - 1}."
    largest = by_interval.get(0, [])
    if any(after.coefficient > before.coefficient for before, after in pairwise(largest)):
        yield "its largest contexts are not in the order of their coefficients."
    if not largest or largest[0].coefficient != record.largest:
        yield f"its first context does not have its largest coefficient, {record.largest:g}."


def _wrong(record: ExpertRecord, index: IndexRecord, row: Row[Any]) -> str | None:
    """What is wrong with one context."""
    length = len(unpack(row.token_ids))
    if not row.position < length <= index.context:
        return f"peaks at token {row.position} of a sequence of {length}"
    try:
        active = unpack_active(row.active)
    except DamagedStoreError:
        return "cannot be unpacked"
    positions = [position for position, _, _ in active]
    if positions != sorted(set(positions)) or not all(position < length for position in positions):
        return "is active on tokens that its sequence does not have, or on one twice"
    if dict(zip(positions, (it[1] for it in active), strict=True)).get(row.position) != row.coefficient:
        return f"has another coefficient where it peaks than the {row.coefficient:g} it is listed with"
    if row.interval > len(record.intervals):
        return "is of an interval that there is not"
    if row.interval:
        low, high, _ = record.intervals[row.interval - 1]
        if not low <= row.coefficient <= high:
            return f"has the coefficient {row.coefficient:g}, outside of {low:g} to {high:g}"
    return None
