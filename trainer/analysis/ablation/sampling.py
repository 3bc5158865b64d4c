"""Sample of an expert's stored examples, weighted to represent all its active tokens.

The index stores random examples from each activation bin. A mean weighted by the number of active tokens in each bin
estimates the mean over all tokens on which the expert is active, not only over its top examples.

Shapes: P examples, N experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.analysis.indexing.activations import Floats, Ints
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.tables import ExampleRecord, ExpertRecord, IndexRecord, RunRecord, SequenceRecord

NEIGHBOURS = 8
"""Experts on either side, in order of density, from which the random expert of similar density is drawn."""


class SampledExamples(NamedTuple):
    """Random examples of all experts; each field [P]."""

    expert: Ints
    sequence: Ints
    position: Ints
    weight: Floats
    """Number of the expert's active tokens that the example represents."""

    def select(self, chosen_P: Ints) -> SampledExamples:
        """Return some of the examples, chosen by index."""
        return SampledExamples(
            self.expert[chosen_P], self.sequence[chosen_P], self.position[chosen_P], self.weight[chosen_P]
        )


class ExpertActivity(NamedTuple):
    """Activity of every expert in the index; each field [N]."""

    density: Floats
    p99: Floats

    @property
    def active(self) -> Ints:
        """Experts that are not dead, by ascending density."""
        order = np.argsort(self.density, kind="stable")
        return order[self.density[order] > 0]


def get_indexed_run(session: Session, name: str) -> RunRecord:
    """Return the record of an indexed run.

    Raises:
        UserError: the run is not indexed.
    """
    run = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if run is None or session.get(IndexRecord, run.id) is None:
        raise UserError(f"{name} is not indexed. Run: mxd index {name}")
    return run


def read_activity(session: Session, run: RunRecord) -> ExpertActivity:
    """Read density and 99th percentile of every expert."""
    query = select(ExpertRecord.expert, ExpertRecord.density, ExpertRecord.p99).where(ExpertRecord.run_id == run.id)
    density, p99 = np.zeros(run.num_experts), np.zeros(run.num_experts)
    for expert, expert_density, expert_p99 in session.execute(query):
        density[expert], p99[expert] = expert_density, expert_p99
    return ExpertActivity(density, p99)


def sample_examples(session: Session, run: RunRecord, examples_per_bin: int) -> SampledExamples:
    """Read up to ``examples_per_bin`` random examples from each activation bin of each expert, sorted by expert.

    Raises:
        UserError: the index has no random examples.
    """
    query = (
        select(ExampleRecord.expert, ExampleRecord.bin, ExampleRecord.sequence, ExampleRecord.position)
        .where(ExampleRecord.run_id == run.id, ExampleRecord.bin > 0, ExampleRecord.rank < examples_per_bin)
        .order_by(ExampleRecord.expert, ExampleRecord.bin, ExampleRecord.rank)
    )
    rows = np.array([tuple(row) for row in session.execute(query)], np.int64).reshape(-1, 4)
    if not len(rows):
        raise UserError(
            f"The index of {run.name} has no random examples. Run: mxd index {run.name} --examples-per-bin 1 (or more)"
        )
    expert, bin_number, sequence, position = rows.T
    _, group, counts = np.unique(rows[:, :2], axis=0, return_inverse=True, return_counts=True)
    active = _active_tokens(session, run, expert, bin_number)
    return SampledExamples(expert, sequence, position, active / counts[group.reshape(-1)])


def _active_tokens(session: Session, run: RunRecord, expert_P: Ints, bin_P: Ints) -> Floats:
    query = select(ExpertRecord).where(ExpertRecord.run_id == run.id).order_by(ExpertRecord.expert)
    bins = [record.bins for record in session.scalars(query)]
    pairs = zip(expert_P.tolist(), bin_P.tolist(), strict=True)
    return np.array([bins[number][bin_number - 1][2] for number, bin_number in pairs], np.float64)


def select_experts(
    examples: SampledExamples, experts: tuple[int, ...], random_experts: Ints, run: RunRecord
) -> SampledExamples:
    """Keep the examples of some experts and of their random experts, which are shown beside them.

    Args:
        random_experts: random expert of each expert, [N].

    Raises:
        UserError: an expert is unknown or has no examples.
    """
    missing = sorted(set(experts) - set(examples.expert.tolist()))
    if missing:
        raise UserError(
            f"Expert {missing[0]} of {run.name} has no examples. Choose experts from 0 to {run.num_experts - 1} "
            "that are not dead."
        )
    chosen = np.union1d(experts, random_experts[list(experts)])
    return examples.select(np.flatnonzero(np.isin(examples.expert, chosen)))


def group_by_sequence(examples: SampledExamples) -> Iterator[tuple[int, Ints]]:
    """Yield each sequence with the indices of its examples."""
    order = np.argsort(examples.sequence, kind="stable")
    numbers, starts = np.unique(examples.sequence[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)


def read_sequences(session: Session, run: RunRecord) -> dict[int, list[int]]:
    """Read the token ids of every stored sequence."""
    query = select(SequenceRecord.sequence, SequenceRecord.token_ids).where(SequenceRecord.run_id == run.id)
    return {number: np.frombuffer(ids, "<u4").tolist() for number, ids in session.execute(query)}


def density_matched_experts(activity: ExpertActivity, seed: int) -> Ints:
    """Draw a random expert of similar density for each active expert, [N]. The only active expert gets itself."""
    active = activity.active
    generator = np.random.default_rng(seed)
    random_experts = np.arange(len(activity.density))
    for rank, expert in enumerate(active.tolist()):
        low, high = max(0, rank - NEIGHBOURS), min(len(active), rank + NEIGHBOURS + 1)
        neighbours = np.delete(active[low:high], rank - low)
        if len(neighbours):
            random_experts[expert] = generator.choice(neighbours)
    return random_experts
