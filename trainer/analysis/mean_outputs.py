"""Mean output of an expert over its active tokens: a steering vector for programs that add vectors.

Shapes: T tokens, I input width, O output width, P active tokens of one expert.
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


class MeanOutput(NamedTuple):
    """Mean output of an expert."""

    expert: int
    vector_O: Tensor
    """Mean of what the expert adds to the residual stream, float32 on the CPU."""
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
    """Average each expert's output over all active tokens of the sequences of its stored examples.

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
        sums = [_sum_outputs(layer, _mlp_input(language_model, run, ids), expert) for ids in sequences]
        tokens = sum(count for _, count in sums)
        if tokens == 0:
            raise UserError(
                f"Expert {expert} of '{run.name}' is not active on its stored examples. Index the run again."
            )
        total_O = torch.stack([total for total, _ in sums]).sum(0)
        means.append(MeanOutput(expert, (total_O / tokens).float().cpu(), tokens))
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


def _mlp_input(language_model: LanguageModel, run: Run, ids: list[int]) -> Tensor:
    """Input of the run's layer at every token, [T, I]."""
    activations = language_model.capture(run.config.layer, torch.tensor([ids]))
    return activations.inputs_for(run.layer).float()


def _sum_outputs(layer: SparseLayer, x_TI: Tensor, expert: int) -> tuple[Tensor, int]:
    """Sum of an expert's outputs over its active tokens, [O] in float64, and their number."""
    routing = layer.route(x_TI)
    chosen_TK = (routing.indices_TK == expert) & (routing.coefficients_TK > 0)
    tokens_P = chosen_TK.any(1).nonzero().squeeze(1)
    coefficients_PK = routing.coefficients_TK[chosen_TK].unsqueeze(1)
    single = Routing(coefficients_PK, torch.full_like(routing.indices_TK[chosen_TK], expert).unsqueeze(1))
    outputs_PO = layer.contribution(layer.dense_output(x_TI[tokens_P]), single)
    return outputs_PO.double().sum(0), len(tokens_P)
