"""Which stored contexts stand for an expert, and for how many of its active tokens each stands.

The index keeps contexts at random from each interval of coefficients. Weighted by how many active tokens an interval
has, a mean over them estimates the mean over all tokens on which the expert is active, not over its best ones.

Shapes: P contexts, N experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from trainer.errors import UserError
from trainer.indexing.pairs import Floats, Ints
from trainer.store import ContextRecord, ExpertRecord, IndexRecord, RunRecord, SequenceRecord

NEIGHBOURS = 8
"""Experts on either side, by usage, of which one is drawn as the random expert of the same usage."""


class Picks(NamedTuple):
    """Contexts, each field [P]."""

    expert: Ints
    sequence: Ints
    position: Ints
    weight: Floats
    """Active tokens of the expert that the context stands for."""

    def of(self, chosen_P: Ints) -> Picks:
        """Some of them."""
        return Picks(self.expert[chosen_P], self.sequence[chosen_P], self.position[chosen_P], self.weight[chosen_P])


class Known(NamedTuple):
    """What the index knows of every expert, each field [N]."""

    usage: Floats
    p99: Floats

    @property
    def active(self) -> Ints:
        """Those that are active at all, least used first."""
        order = np.argsort(self.usage, kind="stable")
        return order[self.usage[order] > 0]


def find_indexed(session: Session, name: str) -> RunRecord:
    """The record of a run that has been indexed.

    Raises:
        UserError: it has not.
    """
    run = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if run is None or session.get(IndexRecord, run.id) is None:
        raise UserError(f"{name} has no contexts in the store; make them with mxd index {name} first.")
    return run


def read_known(session: Session, run: RunRecord) -> Known:
    """Usage and 99th percentile of every expert."""
    wanted = select(ExpertRecord.expert, ExpertRecord.usage, ExpertRecord.p99).where(ExpertRecord.run_id == run.id)
    usage, p99 = np.zeros(run.num_experts), np.zeros(run.num_experts)
    for expert, expert_usage, expert_p99 in session.execute(wanted):
        usage[expert], p99[expert] = expert_usage, expert_p99
    return Known(usage, p99)


def read_picks(session: Session, run: RunRecord, per_interval: int) -> Picks:
    """Up to ``per_interval`` contexts of each interval of each expert, by expert.

    Raises:
        UserError: the index kept no contexts at random.
    """
    wanted = (
        select(ContextRecord.expert, ContextRecord.interval, ContextRecord.sequence, ContextRecord.position)
        .where(ContextRecord.run_id == run.id, ContextRecord.interval > 0, ContextRecord.rank < per_interval)
        .order_by(ContextRecord.expert, ContextRecord.interval, ContextRecord.rank)
    )
    rows = np.array([tuple(row) for row in session.execute(wanted)], np.int64).reshape(-1, 4)
    if not len(rows):
        raise UserError(
            f"The index of {run.name} kept no contexts at random; make it again with --per-interval 1 or more."
        )
    expert, interval, sequence, position = rows.T
    _, group, counts = np.unique(rows[:, :2], axis=0, return_inverse=True, return_counts=True)
    active = _active_tokens(session, run, expert, interval)
    return Picks(expert, sequence, position, active / counts[group.reshape(-1)])


def _active_tokens(session: Session, run: RunRecord, expert: Ints, interval: Ints) -> Floats:
    wanted = select(ExpertRecord).where(ExpertRecord.run_id == run.id).order_by(ExpertRecord.expert)
    intervals = [record.intervals for record in session.scalars(wanted)]
    pairs = zip(expert.tolist(), interval.tolist(), strict=True)
    return np.array([intervals[number][place - 1][2] for number, place in pairs], np.float64)


def by_sequence(picks: Picks) -> Iterator[tuple[int, Ints]]:
    """Each sequence with the places of its contexts in ``picks``."""
    order = np.argsort(picks.sequence, kind="stable")
    numbers, starts = np.unique(picks.sequence[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)


def read_sequences(session: Session, run: RunRecord) -> dict[int, list[int]]:
    """Token ids of every stored sequence."""
    wanted = select(SequenceRecord.sequence, SequenceRecord.token_ids).where(SequenceRecord.run_id == run.id)
    return {number: np.frombuffer(ids, "<u4").tolist() for number, ids in session.execute(wanted)}


def others_of_same_usage(known: Known, seed: int) -> Ints:
    """[N]: for each active expert another one, drawn among its neighbours by usage; itself where it is alone."""
    active = known.active
    chance = np.random.default_rng(seed)
    others = np.arange(len(known.usage))
    for place, expert in enumerate(active.tolist()):
        low, high = max(0, place - NEIGHBOURS), min(len(active), place + NEIGHBOURS + 1)
        near = np.delete(active[low:high], place - low)
        if len(near):
            others[expert] = chance.choice(near)
    return others
