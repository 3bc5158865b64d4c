"""Data in memory that pages and searches of experts need, per indexed run.

The state of a run is checked after any process has written to the database, and loaded again if it has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.backend.caches import StampedCache
from mxd.backend.database.annotations import all_labels
from mxd.backend.database.engine import DatabaseVersion, reading
from mxd.backend.queries.automatic_labels import ShownLabels, load_shown_labels, shown_labels_stamp
from mxd.backend.queries.expert_table import Columns, TokenIndex, columns_stamp, load_columns, load_token_index
from mxd.backend.queries.runs import find_index, find_run
from mxd.trainer.storage.database.tables import IndexRecord, RunRecord


@dataclass(frozen=True)
class BrowsedRun:
    """An indexed run in one state of the database."""

    record: RunRecord
    """Detached from its session, as ``index``."""
    index: IndexRecord
    columns: Columns
    automatic: ShownLabels
    labels: Mapping[int, str]
    """User labels."""


class RunCache:
    """The recently browsed runs of a database."""

    def __init__(self, database: Engine) -> None:
        self._database = database
        self._version = DatabaseVersion(database)
        self._browsed = StampedCache[BrowsedRun]()
        self._columns = StampedCache[Columns]()
        self._automatic = StampedCache[ShownLabels]()
        self._tokens = StampedCache[TokenIndex]()

    def of(self, name: str) -> BrowsedRun:
        """Return a run in its current state.

        Raises RunNotFoundError: the database has no such run; NoIndexError: the run is not indexed.
        """
        # The version is read first: a write during loading then makes another version.
        return self._browsed.get(name, self._version.now(), lambda: self._read(name))

    def tokens(self, session: Session, browsed: BrowsedRun) -> TokenIndex:
        """Return who is active on which token."""
        index = browsed.index
        return self._tokens.get(index.run_id, index.created_at, lambda: load_token_index(session, index.run_id))

    def close(self) -> None:
        """Close the connection."""
        self._version.close()

    def _read(self, name: str) -> BrowsedRun:
        with reading(self._database) as session:
            record = find_run(session, name)
            index = find_index(session, record)
            run_id, created = record.id, index.created_at
            numbers, labels = (created, columns_stamp(session, run_id)), (created, shown_labels_stamp(session, run_id))
            browsed = BrowsedRun(
                record=record,
                index=index,
                columns=self._columns.get(run_id, numbers, lambda: load_columns(session, run_id)),
                automatic=self._automatic.get(run_id, labels, lambda: load_shown_labels(session, run_id)),
                labels=all_labels(session, name),
            )
            session.expunge(record)
            session.expunge(index)
            return browsed
