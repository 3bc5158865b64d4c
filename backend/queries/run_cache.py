"""In-memory cache of indexed runs, so that a page of experts needs no SQL.

A run is reloaded after any process has written to the database. ``DatabaseVersion`` detects this before every response.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import Lock, Thread
from typing import TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from mxd.backend.database import annotations as notes
from mxd.backend.database import annotations as tags
from mxd.backend.database.engine import DatabaseVersion, reading
from mxd.backend.locks import KeyedLocks
from mxd.backend.queries.automatic_labels import ShownLabels, load_shown_labels, shown_labels_stamp
from mxd.backend.queries.caches import MAX_RUNS, IndexCache
from mxd.backend.queries.expert_table import Columns, columns_stamp, load_columns
from mxd.backend.queries.experts import check_expert, not_indexed
from mxd.backend.queries.runs import find_index, find_run
from mxd.backend.queries.search_index import LruCache, SearchIndex, build_search_index
from mxd.backend.responses import CachedResponse
from mxd.backend.schemas.experts import SearchHit
from mxd.trainer.errors import NotFoundError
from mxd.trainer.storage.database.tables import RunRecord

TRIES = 3
PAGES_HELD = 128
SEARCHES_HELD = 512
"""Cached searches. Up to 40 MB with 20 hits and an example each."""
T = TypeVar("T")


@dataclass(frozen=True)
class BrowsedRun:
    """An indexed run in one state of the database."""

    record: RunRecord
    """Detached from its session."""
    columns: Columns
    search: SearchIndex
    automatic: ShownLabels
    labels: Mapping[int, str]
    """User labels."""
    tags: Mapping[int, tuple[str, ...]]

    @cached_property
    def by_label(self) -> dict[bool, Columns]:
        """Columns sorted by label, for descending and ascending order."""
        return {
            descending: self.columns.with_labels(self.labels, self.automatic.best_first, descending)
            for descending in (False, True)
        }

    @cached_property
    def figures(self) -> dict[str, CachedResponse]:
        """Figures drawn in this state."""
        return {}

    @cached_property
    def pages(self) -> LruCache[CachedResponse]:
        """Recent pages of this state, at most about 100 kB each."""
        return LruCache(PAGES_HELD)

    @cached_property
    def searches(self) -> LruCache[tuple[SearchHit, ...]]:
        """Results of recent searches in this state, by text and limit."""
        return LruCache(SEARCHES_HELD)

    def place(self, expert: int) -> int:
        """Return the index of an expert in the columns.

        Raises:
            ExpertNotFoundError: the run has no such expert, or it is not in the index.
        """
        check_expert(self.record, expert)
        places = self.columns.places([expert])
        if not places:
            raise not_indexed(self.record, expert)
        return places[expert]


class RunCache:
    """Cache of the recently browsed runs of a database."""

    def __init__(self, database: Engine) -> None:
        self._database = database
        self._version = DatabaseVersion(database)
        self._lock = Lock()
        self._turns = KeyedLocks()
        self._held: OrderedDict[str, tuple[Hashable, BrowsedRun]] = OrderedDict()
        self._loading: set[str] = set()
        self.search_indexes = IndexCache(build_search_index)
        self.columns = IndexCache(load_columns, columns_stamp)
        self._automatic = IndexCache(load_shown_labels, shown_labels_stamp)

    def get_cached(self, name: str) -> BrowsedRun | None:
        """Return the cached run without database access; None if it is missing or outdated."""
        entry = self._held.get(name)
        return entry[1] if entry and self._version.is_quick and entry[0] == self._version.now() else None

    @property
    def is_quick(self) -> bool:
        """True if ``version`` takes microseconds."""
        return self._version.is_quick

    def version(self) -> Hashable:
        """Return a value that changes with every commit of any process."""
        return self._version.now()

    def is_cached(self, name: str) -> bool:
        """Return whether a run is cached, in any state."""
        return name in self._held

    def of(self, name: str) -> BrowsedRun:
        """Return a run in its current state.

        Raises:
            RunNotFoundError: the database has no such run.
            NoIndexError: the run is not indexed.
        """
        version = self._version.now()
        entry = self._held.get(name)
        if entry and entry[0] == version:
            return entry[1]
        with self._turns.of(name):  # loading one run delays no other
            # Read the version first: a write during loading then makes another version.
            version = self._version.now()
            entry = self._held.get(name)
            if entry and entry[0] == version:
                return entry[1]
            with reading(self._database) as session:
                browsed = self._read(session, name)
            with self._lock:
                self._held[name] = (version, browsed)
                while len(self._held) > MAX_RUNS:
                    self._held.popitem(last=False)
            return browsed

    def read(self, name: str, make: Callable[[Session, BrowsedRun], T]) -> T:
        """Return the result of ``make`` with a cached run and a session in the same state.

        Raises:
            RunNotFoundError: the database has no such run.
            NoIndexError: the run is not indexed.
        """
        for _ in range(TRIES):
            browsed = self.of(name)
            with reading(self._database) as session:
                made = make(session, browsed)
            entry = self._held.get(name)
            if entry and entry[1] is browsed and entry[0] == self._version.now():
                break  # the database did not change in between
        return made

    def preload(self, name: str) -> None:
        """Start loading a run in a background thread, unless it is being loaded."""
        if name not in self._loading:
            self._loading.add(name)
            Thread(target=self._try_to_load, args=(name,), daemon=True).start()

    def close(self) -> None:
        """Close the connection."""
        self._version.close()

    def _try_to_load(self, name: str) -> None:
        try:
            self.of(name)
        except (NotFoundError, SQLAlchemyError):
            return  # the next request reports the error
        finally:
            self._loading.discard(name)

    def _read(self, session: Session, name: str) -> BrowsedRun:
        record = find_run(session, name)
        index = find_index(session, record)
        browsed = BrowsedRun(
            record=record,
            columns=self.columns.of(session, index),
            search=self.search_indexes.of(session, index),
            automatic=self._automatic.of(session, index),
            labels=notes.all_labels(session, name),
            tags=tags.all_tags(session, name),
        )
        session.expunge(record)
        return browsed
