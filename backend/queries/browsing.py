"""What browsing needs of a run, in memory: read once, and again after any process has written to the store.

A page then costs no SQL. That nothing was written is asked of the store before every answer (``StoreVersion``).
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

from backend import notes, tags
from backend.answers import Kept
from backend.database import StoreVersion, reading
from backend.queries.automatic import ShownLabels, load_shown_labels, shown_labels_stamp
from backend.queries.experts import check_expert, not_indexed
from backend.queries.held import RUNS_HELD, HeldPerIndex
from backend.queries.runs import find_index, find_run
from backend.queries.search_index import Held, SearchIndex, build_search_index
from backend.queries.table import Columns, columns_stamp, load_columns
from backend.schemas import SearchHit
from trainer.errors import NotFoundError
from trainer.store import RunRecord

TRIES = 3
PAGES_HELD = 128
SEARCHES_HELD = 512
"""Of 20 hits with a context each: 40 MB."""
T = TypeVar("T")


@dataclass(frozen=True)
class BrowsedRun:
    """An indexed run in one state of the store."""

    record: RunRecord
    """Detached."""
    columns: Columns
    search: SearchIndex
    automatic: ShownLabels
    labels: Mapping[int, str]
    """Given by people."""
    tags: Mapping[int, tuple[str, ...]]

    @cached_property
    def by_label(self) -> dict[bool, Columns]:
        """With a column ``label``, for the descending order and the ascending one."""
        return {descending: self.columns.with_labels(self.labels, descending) for descending in (False, True)}

    @cached_property
    def figures(self) -> dict[str, Kept]:
        """Those that have been drawn in this state."""
        return {}

    @cached_property
    def pages(self) -> Held[Kept]:
        """Pages last asked for in this state, at most about 100 kB each: people begin at the same ones."""
        return Held(PAGES_HELD)

    @cached_property
    def searches(self) -> Held[tuple[SearchHit, ...]]:
        """What was found for the searches last made in this state, by text and limit."""
        return Held(SEARCHES_HELD)

    def place(self, expert: int) -> int:
        """Where an expert stands in the columns.

        Raises:
            ExpertNotFoundError: the run has no such expert, or its index says nothing of it.
        """
        check_expert(self.record, expert)
        found = self.columns.places([expert])
        if not found:
            raise not_indexed(self.record, expert)
        return found[expert]


class Browsing:
    """The runs of a store that were browsed last."""

    def __init__(self, store: Engine) -> None:
        self._store = store
        self._version = StoreVersion(store)
        self._lock = Lock()
        self._held: OrderedDict[str, tuple[Hashable, BrowsedRun]] = OrderedDict()
        self._loading: set[str] = set()
        self.search_indexes = HeldPerIndex(build_search_index)
        self.columns = HeldPerIndex(load_columns, columns_stamp)
        self._automatic = HeldPerIndex(load_shown_labels, shown_labels_stamp)

    def at_once(self, name: str) -> BrowsedRun | None:
        """A run as it is held, without reading anything; None where that would not be its state now."""
        held = self._held.get(name)
        return held[1] if held and self._version.is_quick and held[0] == self._version.now() else None

    def is_held(self, name: str) -> bool:
        """Whether a run is in memory, in this state or in one before."""
        return name in self._held

    def of(self, name: str) -> BrowsedRun:
        """A run as it is now.

        Raises:
            RunNotFoundError: the store has none of this name.
            NoIndexError: it has not been indexed.
        """
        version = self._version.now()
        held = self._held.get(name)
        if held and held[0] == version:
            return held[1]
        with self._lock:
            # Asked for before anything is read: what is written meanwhile makes another version.
            version = self._version.now()
            held = self._held.get(name)
            if held and held[0] == version:
                return held[1]
            with reading(self._store) as session:
                browsed = self._read(session, name)
            self._held[name] = (version, browsed)
            while len(self._held) > RUNS_HELD:
                self._held.popitem(last=False)
            return browsed

    def read(self, name: str, make: Callable[[Session, BrowsedRun], T]) -> T:
        """What ``make`` makes of a run in memory and of the store together, both in one state.

        Raises:
            RunNotFoundError: the store has none of this name.
            NoIndexError: it has not been indexed.
        """
        for _ in range(TRIES):
            browsed = self.of(name)
            with reading(self._store) as session:
                made = make(session, browsed)
            held = self._held.get(name)
            if held and held[1] is browsed and held[0] == self._version.now():
                break  # nothing was written between the one and the other
        return made

    def load_soon(self, name: str) -> None:
        """Begin to read a run, unless that has begun, and do not wait for it."""
        if name not in self._loading:
            self._loading.add(name)
            Thread(target=self._try_to_load, args=(name,), daemon=True).start()

    def close(self) -> None:
        """Let go of the store."""
        self._version.close()

    def _try_to_load(self, name: str) -> None:
        try:
            self.of(name)
        except (NotFoundError, SQLAlchemyError):
            return  # who asks next is told
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
