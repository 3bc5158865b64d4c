"""Mean of what an expert adds to the residual stream at its active tokens: a steering vector for programs that add
vectors.

Shapes: T tokens, I input width, O output width, W width of the residual stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from sqlalchemy import Engine, and_, select
from sqlalchemy.orm import Session
from torch import Tensor

from mxd.trainer.analysis.ablation.sampling import get_indexed_run
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.storage.database.column_types import TOKEN_IDS
from mxd.trainer.storage.database.tables import ExampleRecord, SequenceRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_fits
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.devices import in_float64


class MeanOutput(NamedTuple):
    """Mean output of an expert."""

    expert: int
    vector_W: Tensor
    """Mean of what the block adds to the residual stream because of the expert, float32 on the CPU."""
    tokens: int
    """Number of active tokens averaged."""


@torch.no_grad()
def mean_outputs(
    run: Run,
    experts: Sequence[int],
    language_model: LanguageModel,
    database: Engine,
    callbacks: Callbacks = NO_CALLBACKS,
) -> list[MeanOutput]:
    """Average what a block adds because of each expert, over all active tokens of its stored examples' sequences.

    Raises:
        UserError: the run is not indexed, an expert is unknown or dead, or the language model is another one.
        CancelledError: the task was cancelled.
    """
    check_fits(language_model, run)
    layer = run.layer.to(language_model.device_of(run.config.layer))
    means = []
    for done, expert in enumerate(experts):
        callbacks.check_cancelled()
        sequences = _sequences_of(run, expert, database)
        sums = [_sum_added(language_model, run.config.layer, layer, ids, expert) for ids in sequences]
        tokens = sum(count for _, count in sums)
        if tokens == 0:
            raise UserError(
                f"Expert {expert} of '{run.name}' is not active on its stored examples. Index the run again."
            )
        total_W = torch.stack([total for total, _ in sums]).sum(0)
        means.append(MeanOutput(expert, (total_W / tokens).float().cpu(), tokens))
        callbacks.on_progress(done + 1, len(experts), "")
    return means


def _sequences_of(run: Run, expert: int, database: Engine) -> list[list[int]]:
    """Return the token ids of all sequences with stored examples of an expert.

    Raises:
        UserError: there are none.
    """
    if not 0 <= expert < run.layer_config.num_experts:
        raise UserError(f"Unknown expert {expert}. '{run.name}' has experts 0 to {run.layer_config.num_experts - 1}.")
    with Session(database) as session:
        record = get_indexed_run(session, run.name)
        same = and_(SequenceRecord.run_id == ExampleRecord.run_id, SequenceRecord.sequence == ExampleRecord.sequence)
        query = (
            select(SequenceRecord.sequence, SequenceRecord.token_ids)
            .join(ExampleRecord, same)
            .where(ExampleRecord.run_id == record.id, ExampleRecord.expert == expert)
        )
        packed = {row.sequence: bytes(row.token_ids) for row in session.execute(query)}
    if not packed:
        raise UserError(f"Expert {expert} of '{run.name}' is dead: it has no active tokens. Choose another one.")
    return [np.frombuffer(packed[sequence], TOKEN_IDS).tolist() for sequence in sorted(packed)]


def _sum_added(
    language_model: LanguageModel, index: int, layer: SparseLayer, ids: list[int], expert: int
) -> tuple[Tensor, int]:
    """Sum over a sequence's active tokens of what block ``index`` adds because of an expert, [W] in float64, and their
    number."""
    x_TI = language_model.capture(index, torch.tensor([ids])).inputs_for(layer).float()
    routing = layer.route(x_TI)
    active_TK = (routing.indices_TK == expert) & (routing.coefficients_TK > 0)
    own = Routing(routing.coefficients_TK * active_TK, routing.indices_TK)
    output_TO = layer.contribution(layer.dense_output(x_TI), own)
    added_TW = language_model.additions.of_sequence(index, ids, output_TO)
    active_T = active_TK.any(1).to(added_TW.device)
    return in_float64(added_TW[active_T]).sum(0), int(active_T.sum())
