"""Maintenance of a database: check its consistency, rescue what users wrote, reclaim disk space, upgrade its tables.

The check reads integrity, row counts, and a sample of decoded examples. Annotations of deleted runs are kept on purpose
and are not reported. An upgrade of a database that an older version wrote is complete, or rolled back.
"""

import random
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, Row, Table, exists, func, select
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from mxd.backend.database.engine import OF_BACKEND, OWN_TABLES, WITH_TOKENS, opened, size_in_bytes
from mxd.trainer.errors import DamagedDatabaseError, NotFoundError, UserError
from mxd.trainer.storage.database.column_types import unpack, unpack_active
from mxd.trainer.storage.database.engine import cannot_open, connect, harden_sqlite, schema_transaction
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import OF_TRAINER, read_version, sqlite_file_url, upgrade, writing
from mxd.trainer.storage.database.search import compact_search, count_documents
from mxd.trainer.storage.database.tables import ExampleRecord, IndexRecord, RoutedRecord, RunRecord, SequenceRecord
from mxd.trainer.utils.files import one_line

MAX_SQLITE_FINDINGS = 20
"""Reported findings of SQLite's own checks; a damaged file may have thousands."""
DENSITY_TOLERANCE = 1e-9


def check_database(session: Session, sample: int) -> Iterator[str]:
    """Yield one sentence per problem. ``sample`` experts of each run are checked in full."""
    try:
        yield from _problems(session, sample)
    except (DBAPIError, DamagedDatabaseError) as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise  # the server is gone, which says nothing about the data
        yield f"The check was aborted: the database is damaged ({one_line(error)})."


def _problems(session: Session, sample: int) -> Iterator[str]:
    if session.get_bind().dialect.name == "sqlite":
        execute = session.connection().exec_driver_sql
        for (message,) in execute(f"PRAGMA integrity_check({MAX_SQLITE_FINDINGS})"):
            if message != "ok":
                yield f"SQLite reports a damaged file: {message}."
        for table, row, parent, _ in execute("PRAGMA foreign_key_check").fetchmany(MAX_SQLITE_FINDINGS):
            yield f"Row {row} of {table} refers to a missing row of {parent}."
    for index, run in session.execute(select(IndexRecord, RunRecord).join(RunRecord)).all():
        for problem in (
            *_check_counts(session, run, index),
            *_check_references(session, run),
            *_check_sample(session, run, index, sample),
        ):
            yield f"{run.name}: {problem}"


def _check_counts(session: Session, run: RunRecord, index: IndexRecord) -> Iterator[str]:
    def count(table: type[Any], *conditions: Any) -> int:
        return session.scalar(select(func.count()).select_from(table).where(table.run_id == run.id, *conditions)) or 0

    top = ExampleRecord.bin == 0
    searchable = select(func.count(ExampleRecord.expert.distinct())).where(ExampleRecord.run_id == run.id, top)
    counts = (
        ("examples", index.examples, count(ExampleRecord)),
        ("experts", run.num_experts, count(ExpertRecord)),
        ("active experts", index.active_experts, count(ExpertRecord, ExpertRecord.active_tokens > 0)),
        ("searchable experts", session.scalar(searchable), count_documents(session, run.id)),
    )
    for name, expected, actual in counts:
        if expected != actual:
            yield f"expected {expected} {name}, found {actual}."
    difference = func.abs(ExpertRecord.density * index.tokens - ExpertRecord.active_tokens)
    if wrong := count(ExpertRecord, difference > DENSITY_TOLERANCE * index.tokens):
        yield f"the density of {wrong} experts does not match their active tokens."


def _check_references(session: Session, run: RunRecord) -> Iterator[str]:
    for name, table in (("examples", ExampleRecord), ("routed sequences", RoutedRecord)):
        stored = exists().where(SequenceRecord.run_id == run.id, SequenceRecord.sequence == table.sequence)
        query = select(func.count()).select_from(table).where(table.run_id == run.id, ~stored)
        if missing := session.scalar(query):
            yield f"{missing} {name} refer to a missing token sequence."
    known = exists().where(ExpertRecord.run_id == run.id, ExpertRecord.expert == ExampleRecord.expert)
    query = select(func.count()).select_from(ExampleRecord).where(ExampleRecord.run_id == run.id, ~known)
    if missing := session.scalar(query):
        yield f"{missing} examples refer to a missing expert."


def _check_sample(session: Session, run: RunRecord, index: IndexRecord, sample: int) -> Iterator[str]:
    """Check random experts, others on every call."""
    query = select(ExpertRecord.expert).where(ExpertRecord.run_id == run.id, ExpertRecord.active_tokens > 0)
    active = session.scalars(query).all()
    for expert in sorted(random.sample(active, min(sample, len(active)))):
        record = session.get_one(ExpertRecord, (run.id, expert))
        # Rows stay packed, so that a damaged one is reported rather than raised.
        of_expert = ExampleRecord.run_id == run.id, ExampleRecord.expert == expert
        ordered = WITH_TOKENS.where(*of_expert).order_by(ExampleRecord.bin, ExampleRecord.rank)
        rows = list(session.execute(ordered))
        if {sum(record.histogram), sum(int(active) for *_, active in record.bins)} != {record.active_tokens}:
            yield f"expert {expert}: its histogram and bins do not add up to its {record.active_tokens} active tokens."
        for problem in _check_examples(record, index, rows):
            yield f"expert {expert}: {problem}"
        session.expunge(record)


def _check_examples(record: ExpertRecord, index: IndexRecord, rows: list[Any]) -> Iterator[str]:
    by_bin: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        by_bin[row.bin].append(row)
        if problem := _example_problem(record, index, row):
            yield f"example {row.rank} of bin {row.bin} {problem}."
    for number, examples in by_bin.items():
        if [row.rank for row in examples] != list(range(len(examples))):
            yield f"the ranks of bin {number} are not 0 to {len(examples) - 1}."
    top = by_bin.get(0, [])
    if any(after.activation > before.activation for before, after in pairwise(top)):
        yield "its top examples are not sorted by activation."
    if not top or top[0].activation != record.max_activation:
        yield f"its first top example does not have its largest activation, {record.max_activation:g}."


def _example_problem(record: ExpertRecord, index: IndexRecord, row: Row[Any]) -> str | None:
    length = len(unpack(row.token_ids))
    if not row.position < length <= index.context_length:
        return f"has position {row.position} in a sequence of {length} tokens"
    try:
        active = unpack_active(row.active)
    except DamagedDatabaseError:
        return "cannot be decoded"
    positions = [position for position, _, _ in active]
    if positions != sorted(set(positions)) or not all(position < length for position in positions):
        return "has invalid active positions"
    if dict(zip(positions, (pair[1] for pair in active), strict=True)).get(row.position) != row.activation:
        return f"has another activation at its position than {row.activation:g}"
    if row.bin > len(record.bins):
        return "has an unknown bin"
    if row.bin:
        low, high, _ = record.bins[row.bin - 1]
        if not low <= row.activation <= high:
            return f"has the activation {row.activation:g}, outside of {low:g} to {high:g}"
    return None


def rescue_annotations(damaged: Path, target: Path) -> dict[str, int]:
    """Copy labels, notes, tags, lists, sessions and access tokens, as far as they can be read, to a new database.

    The damaged file is only read. Runs are not copied; annotations refer to them by name, and apply again after the
    runs have been indexed. Returns the number of copied rows by table.
    """
    if not damaged.is_file():
        raise NotFoundError(f"No database at {damaged}. Choose another folder with --data.")
    if target.exists():
        raise UserError(f"{target} exists. Choose a new file.")
    source = sqlite3.connect(f"file:{quote(str(damaged.resolve()))}?mode=ro", uri=True)
    harden_sqlite(source)
    source.row_factory = sqlite3.Row
    source.text_factory = lambda stored: stored.decode("utf-8", "replace")
    with closing(source), opened(sqlite_file_url(target)) as database:
        return {str(table.name): _copy(source, database, table) for table in OWN_TABLES}


def _copy(source: sqlite3.Connection, database: Any, table: Table) -> int:
    copied = 0
    for row in _readable_rows(source, table.name):
        values = {column.name: row[column.name] for column in table.columns if column.name in row.keys()}  # noqa: SIM118
        names = ", ".join(f'"{name}"' for name in values)
        statement = f'INSERT INTO "{table.name}" ({names}) VALUES ({", ".join("?" * len(values))})'
        with suppress(SQLAlchemyError), writing(database) as session:  # a damaged row may violate a constraint
            session.connection().exec_driver_sql(statement, tuple(values.values()))
            copied += 1
    return copied


def _readable_rows(source: sqlite3.Connection, table: str) -> Iterator[sqlite3.Row]:
    """Yield the rows up to the first damage, then those from the other end."""
    seen: set[int] = set()
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError):
            for row in source.execute(f'SELECT rowid AS "rescued rowid", * FROM "{table}" ORDER BY rowid {order}'):
                if row["rescued rowid"] in seen:
                    break
                seen.add(row["rescued rowid"])
                yield row


WRITING = "Another program is writing to the database. Run the command again when it has finished."


def compact_database(database: Engine) -> dict[str, int]:
    """Reclaim the disk space of deleted rows, merge the full-text index and update the planner's statistics.

    SQLite rewrites the file, which temporarily doubles its size. PostgreSQL's ``VACUUM`` keeps the space for new rows
    and does not block other connections. Returns the sizes on disk before and after.
    """
    before = size_in_bytes(database)
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        execute = connection.exec_driver_sql
        if database.dialect.name != "sqlite":
            others = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()"
            )
            if execute(others).scalar():
                raise UserError(WRITING)
            execute("VACUUM (ANALYZE)")
            return {"bytes_before": before, "bytes_after": size_in_bytes(database)}
        execute("PRAGMA busy_timeout = 0")
        try:
            for run_id in connection.scalars(select(IndexRecord.run_id)).all():
                compact_search(connection, run_id)
            execute("VACUUM")
            execute("ANALYZE")
            # Busy while another connection reads; the log is then merged when it closes.
            execute("PRAGMA wal_checkpoint(TRUNCATE)").all()
        except OperationalError as error:
            if "locked" in str(error.orig) or "busy" in str(error.orig):
                raise UserError(WRITING) from error
            raise UserError(f"Cannot rewrite the database: {error.orig}. Nothing was changed.") from error
        finally:
            execute("PRAGMA busy_timeout = 30000")
    return {"bytes_before": before, "bytes_after": size_in_bytes(database)}


OWNERS = (OF_TRAINER, OF_BACKEND)


@dataclass(frozen=True)
class UpgradeResult:
    """Schema versions of the trainer's tables, and of the backend's."""

    before: int
    annotations_before: int
    after: int
    annotations_after: int


def upgrade_database(url: str) -> UpgradeResult:
    """Upgrade the database at an SQLAlchemy ``url`` in one transaction."""
    engine = connect(url)
    try:
        if engine.dialect.name == "sqlite" and not Path(engine.url.database or "").is_file():
            raise NotFoundError(
                f"No database at {engine.url.render_as_string()}. Choose one with --database or --data."
            )
        with schema_transaction(engine) as connection:
            before = [read_version(connection, tables) for tables in OWNERS]
            if before == [tables.newest for tables in OWNERS]:
                return UpgradeResult(*before, *before)
            for tables in OWNERS:
                upgrade(connection, tables)
            if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
                raise UserError(
                    "The database was not changed: some rows refer to rows that do not exist. "
                    "Run 'mxd database check' with the version that wrote it."
                )
            return UpgradeResult(*before, *(read_version(connection, tables) for tables in OWNERS))
    except DatabaseError as error:
        raise cannot_open(engine.url, error) from error
    finally:
        engine.dispose()
