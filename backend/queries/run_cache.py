"""Data in memory that pages and searches of experts need, per indexed run.

The state of a run is checked after any process has written to the database, and loaded again if it has changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from threading import Lock

from sqlalchemy import Engine

from mxd.backend.database.annotations import all_labels
from mxd.backend.database.engine import DatabaseVersion, reading
from mxd.backend.locks import KeyedLocks
from mxd.backend.queries.automatic_labels import ShownLabels, load_shown_labels, shown_labels_stamp
from mxd.backend.queries.caches import MAX_RUNS, IndexCache
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
        self._lock = Lock()
        self._turns = KeyedLocks()
        self._held: OrderedDict[str, tuple[Hashable, BrowsedRun]] = OrderedDict()
        self._columns = IndexCache(load_columns, columns_stamp)
        self._automatic = IndexCache(load_shown_labels, shown_labels_stamp)
        self.tokens: IndexCache[TokenIndex] = IndexCache(load_token_index)

    def of(self, name: str) -> BrowsedRun:
        """Return a run in its current state.

        Raises:
            RunNotFoundError: the database has no such run.
            NoIndexError: the run is not indexed.
        """
        with self._turns.of(name):  # loading one run delays no other
            # Read the version first: a write during loading then makes another version.
            version = self._version.now()
            entry = self._held.get(name)
            if entry and entry[0] == version:
                return entry[1]
            browsed = self._read(name)
            with self._lock:
                self._held[name] = (version, browsed)
                while len(self._held) > MAX_RUNS:
                    self._held.popitem(last=False)
            return browsed

    def close(self) -> None:
        """Close the connection."""
        self._version.close()

    def _read(self, name: str) -> BrowsedRun:
        with reading(self._database) as session:
            record = find_run(session, name)
            index = find_index(session, record)
            browsed = BrowsedRun(
                record=record,
                index=index,
                columns=self._columns.of(session, index),
                automatic=self._automatic.of(session, index),
                labels=all_labels(session, name),
            )
            session.expunge(record)
            session.expunge(index)
            return browsed
