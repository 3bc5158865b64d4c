"""Orders and filters of a run's experts, from their numbers in memory.

A page is chosen here and read with SQL. SQL alone is too slow for 86,015 experts: a filter on two columns takes 0.1 s
per statement and an order without an index 0.2 s, while labels and recurrences are no columns at all. The numbers take
10 MB. The state of a run is checked after any process has written to the database, and loaded again if it has changed.

Shapes: N experts.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from mxd.backend.caches import StampedCache
from mxd.backend.database.annotations import labels_of
from mxd.backend.database.engine import DatabaseVersion, reading
from mxd.backend.queries.automatic_labels import ShownLabels, load_shown_labels, shown_labels_stamp
from mxd.backend.queries.experts import found_again
from mxd.backend.queries.runs import find_index, find_run
from mxd.trainer.storage.database.column_types import PackedLists
from mxd.trainer.storage.database.expert_columns import ABLATION_COLUMNS, EXPERT_COLUMNS, NUMERIC, ExpertRecord
from mxd.trainer.storage.database.tables import IndexRecord, MeasurementRecord, RunRecord

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

STEERABLE_SHARE = 0.05
"""Share of the active experts that counts as steerable."""
LAST = 1e300
"""Sort key of experts that come last in ascending orders; its negative in descending ones. Beyond any real value."""
STORED = {
    column.key: column
    for column in EXPERT_COLUMNS
    if column.measured_by in ("index", "ablate") and column.kind in NUMERIC and (column.sortable or column.filters)
}


@dataclass(frozen=True)
class Columns:
    """Numbers of every expert."""

    expert: Ints
    """[N], ascending."""
    values: Mapping[str, Floats]
    """Column key -> values [N]: every sortable or filtered number, ``active_tokens`` and ``recurrence``."""

    @property
    def active(self) -> Ints:
        return self.expert[self.values["active_tokens"] > 0]

    @property
    def steerability(self) -> Floats:
        """Steerability [N]; 0 if it was not measured."""
        return np.nan_to_num(self.values["steerability"])

    @property
    def most_steerable(self) -> Ints:
        """Ids of the active experts whose steerability is among the highest; empty if it was not measured."""
        steerability = self.steerability
        known = steerability[steerability > 0]
        if not len(known):
            return self.expert[:0]
        return self.expert[steerability >= np.quantile(known, 1 - STEERABLE_SHARE)]

    def among(self, experts: Collection[int] | NDArray[np.integer]) -> Mask:
        chosen = np.asarray(list(experts) if isinstance(experts, set) else experts, np.int64)
        named = np.zeros(int(self.expert[-1]) + 1 if len(self.expert) else 0, np.bool_)
        named[chosen[chosen < len(named)]] = True
        return named[self.expert]

    def keys(self, sort: str, descending: bool) -> Floats:
        """Return the sort key of each expert. Experts without a value come last: dead or not measured."""
        if sort == "expert":
            return self.expert.astype(np.float64)
        values = self.values[sort]
        if sort == "recurrence":  # -1 if not measured
            return values if descending else np.where(values < 0, LAST, values)
        if sort in ABLATION_COLUMNS:
            return np.where(self.values["output_share"] == 0, -LAST if descending else LAST, values)
        unknown = np.isnan(values) if descending else np.isnan(values) | (self.values["active_tokens"] == 0)
        return np.where(unknown, -LAST if descending else LAST, values)

    def label_keys(self, labels: Mapping[int, str], automatic: Sequence[int], descending: bool) -> Floats:
        """Return the place of each expert in the order of labels, which has those without a label last. User ``labels``
        come first, in alphabetical order, ``descending`` or not; then ``automatic`` ones, best first."""
        written = sorted(labels, key=lambda expert: (labels[expert].casefold(), expert), reverse=descending)
        rest = np.array(automatic, np.int64)
        ordered = np.concatenate([np.array(written, np.int64), rest[~np.isin(rest, written)]])
        ordered = ordered[np.isin(ordered, self.expert)]
        keys = np.full(len(self.expert), -1.0 if descending else float(len(ordered)))
        keys[np.searchsorted(self.expert, ordered)] = np.arange(len(ordered))[:: -1 if descending else 1]
        return keys

    def match_keys(self, matches: Iterable[int], label_keys: Floats) -> Floats:
        """Return the place of each expert in an order with ``matches`` first and the others by label."""
        first = np.array([match for match in matches if match in self.expert], np.int64)
        order = np.lexsort((self.expert, label_keys))
        order = np.concatenate([np.searchsorted(self.expert, first), order[~np.isin(self.expert[order], first)]])
        return np.argsort(order).astype(np.float64)

    def after(
        self, keys: Floats, chosen: Mask | None, descending: bool, last: tuple[float, int] | None, count: int
    ) -> list[tuple[float, int]]:
        """Return the (key, expert) pairs that follow the last one of the previous page, None for the first page."""
        mask = np.ones(len(keys), np.bool_) if chosen is None else chosen
        if last is not None:
            key, expert = last
            beyond = keys < key if descending else keys > key
            further = self.expert < expert if descending else self.expert > expert
            mask = mask & (beyond | ((keys == key) & further))
        places = np.flatnonzero(mask)
        sign = -1 if descending else 1
        if len(places) > count:
            signed = sign * keys[places]
            places = places[signed <= np.partition(signed, count - 1)[count - 1]]
        order = places[np.lexsort((sign * self.expert[places], sign * keys[places]))][:count]
        return list(zip(keys[order].tolist(), self.expert[order].tolist(), strict=True))


def load_columns(session: Session, run_id: int) -> Columns:
    columns = {"expert": ExpertRecord.expert, "active_tokens": ExpertRecord.active_tokens}
    columns |= {key: column.of(ExpertRecord) for key, column in STORED.items()}
    statement = select(*columns.values()).where(ExpertRecord.run_id == run_id).order_by(ExpertRecord.expert)
    rows = np.array(session.execute(statement).all(), np.float64).reshape(-1, len(columns))
    values = dict(zip(columns, rows.T.copy(), strict=True))
    expert_N = values.pop("expert").astype(np.int64)
    # The whole part is the number of other runs, and -1 stands for experts that were not measured. The mean firing
    # cosine, below 1, sorts experts that were found again in as many runs.
    values["recurrence"] = np.full(len(expert_N), -1.0)
    for expert, found in found_again(session, run_id).items():
        at = int(np.searchsorted(expert_N, expert))
        values["recurrence"][at] = found.recurrence + min(max(found.firing_cosine, 0.0), 0.999)
    return Columns(expert_N, values)


def columns_stamp(session: Session, run_id: int) -> Hashable:
    """Return a value that changes with every measurement after indexing."""
    table = MeasurementRecord
    query = select(table.command, table.created_at).where(table.run_id == run_id).order_by(table.command)
    return tuple(map(tuple, session.execute(query)))


@dataclass(frozen=True)
class TokenIndex:
    """Experts by top token. 86,015 experts with 12 tokens each take 12 MB; as lists in the database, they would have to
    be decoded for every search, which takes 0.4 s."""

    token: NDArray[np.int32]
    """Token of every (token, expert) pair, ascending."""
    expert: NDArray[np.int32]
    share: NDArray[np.float32]
    """Share of the expert's active tokens."""

    def users(self, tokens: Collection[int]) -> NDArray[np.int32]:
        """Experts whose most frequent tokens include one of ``tokens``; some more than once."""
        return self.expert[self._places(tokens)]

    def strongest_users(self, tokens: Collection[int], count: int) -> dict[int, tuple[int, float]]:
        """The first ``count`` of them by the largest share that one of ``tokens`` has, with that token and share."""
        places = self._places(tokens)
        share = self.share[places]
        enough = count * len(tokens)  # an expert has one place a token at most
        if 0 < enough < len(share):
            places = places[share >= np.partition(share, -enough)[-enough]]
        order = places[np.lexsort((self.expert[places], -self.share[places]))]
        columns = (column[order].tolist() for column in (self.expert, self.token, self.share))
        strongest: dict[int, tuple[int, float]] = {}
        for expert, token, its_share in zip(*columns, strict=True):
            strongest.setdefault(expert, (token, its_share))
        return dict(islice(strongest.items(), count))

    def num_users(self, tokens: Collection[int], min_share: float) -> int:
        """Number of experts with at least ``min_share`` of their active tokens on one of ``tokens``."""
        places = self._places(tokens)
        return len(np.unique(self.expert[places[self.share[places] >= min_share]]))

    def weighted_users(self, weights: Mapping[int, float]) -> list[tuple[int, float, int, float]]:
        """Return (expert, score, token, share) of the experts that fire on weighted tokens, highest score first. The
        score sums weight times share; the token is the one that adds most to it."""
        places = self._places(list(weights))
        added = self.share[places] * np.array([weights[token] for token in self.token[places].tolist()], np.float32)
        score_N = np.bincount(self.expert[places], added)
        best: dict[int, int] = {}
        for place in places[np.argsort(-added, kind="stable")].tolist():
            best.setdefault(int(self.expert[place]), place)
        ranked = sorted(best, key=lambda expert: (-score_N[expert], expert))
        return [
            (expert, float(score_N[expert]), int(self.token[best[expert]]), float(self.share[best[expert]]))
            for expert in ranked
        ]

    def _places(self, tokens: Collection[int]) -> NDArray[np.int64]:
        requested = np.fromiter(tokens, np.int64, len(tokens))
        starts, ends = np.searchsorted(self.token, requested), np.searchsorted(self.token, requested + 1)
        ranges = [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
        return np.concatenate([np.zeros(0, np.int64), *ranges])


def load_token_index(session: Session, run_id: int) -> TokenIndex:
    requested = text("SELECT expert, active_tokens, top_tokens FROM experts WHERE run_id = :run ORDER BY expert")
    rows = session.execute(requested, {"run": run_id}).all()
    numbers, ends = PackedLists.of([bytes(row[2]) for row in rows]).numbers()
    experts, active = np.array([row[:2] for row in rows], np.int64).reshape(-1, 2).T
    pairs = np.diff(ends) // 2
    tokens = numbers[::2]
    order = np.argsort(tokens, kind="stable")
    return TokenIndex(
        token=tokens[order].astype(np.int32),
        expert=np.repeat(experts, pairs)[order].astype(np.int32),
        share=(numbers[1::2] / np.repeat(np.maximum(active, 1), pairs))[order].astype(np.float32),
    )


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
        """Return a run in its current state."""
        # The version is read first: a write during loading then makes another version.
        return self._browsed.get(name, self._version.now(), lambda: self._read(name))

    def tokens(self, session: Session, browsed: BrowsedRun) -> TokenIndex:
        index = browsed.index
        return self._tokens.get(index.run_id, index.created_at, lambda: load_token_index(session, index.run_id))

    def close(self) -> None:
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
                labels=labels_of(session, name),
            )
            session.expunge(record)
            session.expunge(index)
            return browsed
