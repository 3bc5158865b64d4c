"""Examples on which experts are measured: random ones of the index, or active tokens of a few shared sequences.

The index stores random examples from each activation bin. A mean weighted by the number of active tokens in each bin
estimates the mean over all tokens on which the expert is active, not only over its top examples. If all experts are
measured, most of these examples are replaced by as many random active tokens of a few sequences, because a forward pass
of a sequence costs more than many interventions in it.

Shapes: P examples, M examples of all experts that have enough, N experts, S sequences, T tokens, K active experts,
I input width.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session
from torch.nn.utils.rnn import pad_sequence

from mxd.trainer.analysis.indexing.statistics import Floats, Ints, positions_in_groups
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import ExampleRecord, IndexRecord, RunRecord, SequenceRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

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
        return SampledExamples._make(column[chosen_P] for column in self)


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
    """Return the record of an indexed run. Raises UserError if the run is not indexed."""
    run = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if run is None or session.get(IndexRecord, run.id) is None:
        raise UserError(f"{name} is not indexed. Run 'mxd index {name}'.")
    return run


def read_activity(session: Session, run: RunRecord) -> ExpertActivity:
    """Read density and 99th percentile of every expert."""
    query = select(ExpertRecord.expert, ExpertRecord.density, ExpertRecord.p99).where(ExpertRecord.run_id == run.id)
    density, p99 = np.zeros(run.num_experts), np.zeros(run.num_experts)
    for expert, expert_density, expert_p99 in session.execute(query):
        density[expert], p99[expert] = expert_density, expert_p99
    return ExpertActivity(density, p99)


def sample_examples(session: Session, run: RunRecord, examples_per_bin: int) -> SampledExamples:
    """Read up to ``examples_per_bin`` random examples from each activation bin of each expert, sorted by expert. Raises
    UserError if the index has no random examples."""
    query = (
        select(ExampleRecord.expert, ExampleRecord.bin, ExampleRecord.sequence, ExampleRecord.position)
        .where(ExampleRecord.run_id == run.id, ExampleRecord.bin > 0, ExampleRecord.rank < examples_per_bin)
        .order_by(ExampleRecord.expert, ExampleRecord.bin, ExampleRecord.rank)
    )
    rows = np.array([tuple(row) for row in session.execute(query)], np.int64).reshape(-1, 4)
    if not len(rows):
        raise UserError(
            f"The index of {run.name} has no random examples. Run 'mxd index {run.name} --examples-per-bin 1'."
        )
    expert, _, sequence, position = rows.T
    _, group, counts = np.unique(rows[:, :2], axis=0, return_inverse=True, return_counts=True)
    records = select(ExpertRecord).where(ExpertRecord.run_id == run.id).order_by(ExpertRecord.expert)
    bins = [record.bins for record in session.scalars(records)]
    active = np.array([bins[number][of_bin - 1][2] for number, of_bin in rows[:, :2].tolist()], np.float64)
    return SampledExamples(expert, sequence, position, active / counts[group.reshape(-1)])


def select_experts(
    examples: SampledExamples, experts: tuple[int, ...], random_experts: Ints, run: RunRecord
) -> SampledExamples:
    """Keep the examples of some experts and of their random experts, [N], which are shown beside them. Raises UserError
    if an expert is unknown or has no examples."""
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


SHARED_PAIRS = 60
"""Pairs of active token and expert in the shared sequences, for each measured example. An expert of a tenth of the mean
density then has as many active tokens there as examples, or more."""
SEQUENCES_PER_ROUTING = 16


def share_sequences(
    examples: SampledExamples,
    sequences: dict[int, list[int]],
    run: Run,
    language_model: LanguageModel,
    seed: int,
    callbacks: Callbacks = NO_CALLBACKS,
) -> SampledExamples:
    """Replace the examples of most experts by as many active tokens of equal weight from a few random sequences.

    Of M tokens, one is drawn from each M-th of the expert's tokens there, in order of activation. Experts that are
    active on fewer tokens there keep their examples. All experts do if that would not save forward passes.
    """
    generator = np.random.default_rng([seed, len(sequences)])
    order = generator.permutation(sorted(sequences))
    pairs = np.cumsum([len(sequences[number]) * run.layer.config.k for number in order.tolist()])
    shared = order[: int(np.searchsorted(pairs, SHARED_PAIRS * len(examples.expert))) + 1]
    if len(shared) > len(np.unique(examples.sequence)) // 4:
        return examples
    parts = list[tuple[Ints, Ints, Ints, Floats]]()
    for start in range(0, len(shared), SEQUENCES_PER_ROUTING):
        callbacks.check_cancelled()
        callbacks.on_progress(0, len(examples.expert), f"choosing them: {start} of {len(shared)} sequences")
        parts.append(_active_pairs(shared[start : start + SEQUENCES_PER_ROUTING], sequences, run, language_model))
    expert_P, sequence_P, position_P, activation_P = (np.concatenate(column) for column in zip(*parts, strict=True))
    sorted_P = np.lexsort((activation_P, expert_P))
    wanted_N = np.bincount(examples.expert, minlength=run.layer.config.num_experts)
    found_N = np.bincount(expert_P, minlength=len(wanted_N))
    enough_N = found_N >= wanted_N
    expert_M = np.repeat(np.arange(len(wanted_N)), np.where(enough_N, wanted_N, 0))
    part_M = positions_in_groups(expert_M)
    rank_M = ((part_M + generator.random(len(part_M))) * found_N[expert_M] / wanted_N[expert_M]).astype(np.int64)
    taken_M = sorted_P[(np.cumsum(found_N) - found_N)[expert_M] + rank_M]
    kept = examples.select(np.flatnonzero(~enough_N[examples.expert]))
    drawn = SampledExamples(expert_M, sequence_P[taken_M], position_P[taken_M], np.ones(len(taken_M)))
    joined = SampledExamples(*(np.concatenate(columns) for columns in zip(kept, drawn, strict=True)))
    return joined.select(np.argsort(joined.expert, kind="stable"))


@torch.no_grad()
def _active_pairs(
    numbers: Ints, sequences: dict[int, list[int]], run: Run, language_model: LanguageModel
) -> tuple[Ints, Ints, Ints, Floats]:
    """Expert, sequence, position and activation of all active pairs of some sequences; each [P]."""
    rows = [torch.tensor(sequences[number]) for number in numbers.tolist()]
    ids_ST = pad_sequence(rows, batch_first=True)  # padding on the right changes no earlier token
    x_TI = language_model.mlp_inputs([run.config.layer], ids_ST)[run.config.layer]
    routing = run.layer.route(x_TI.float())
    token_P, column_P = (routing.activations_TK > 0).nonzero(as_tuple=True)
    row_P, position_P = np.divmod(token_P.cpu().numpy(), ids_ST.shape[1])
    is_text_P = position_P < np.array([len(row) for row in rows])[row_P]
    expert_P, activation_P = (
        values_TK[token_P, column_P].cpu().numpy() for values_TK in (routing.indices_TK, routing.activations_TK)
    )
    return expert_P[is_text_P], numbers[row_P[is_text_P]], position_P[is_text_P], activation_P[is_text_P]


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
