"""Data for labelling, read from the database: token features, every expert's examples, and the routed sample.

Shapes: F features, T tokens of all stored sequences, P (expert, token) pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.analysis.labelling.token_features import FEATURES, FeatureExtractor
from mxd.trainer.errors import DamagedDatabaseError, UserError
from mxd.trainer.language_model.tokenizer import start_token_id, token_texts
from mxd.trainer.storage.database.column_types import unpack_routed
from mxd.trainer.storage.database.tables import ExampleRecord, ExpertRecord, RoutedRecord, RunRecord, SequenceRecord
from mxd.trainer.utils.callbacks import Callbacks

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKEN_IDS = np.dtype("<u4")
BLOCK_SEQUENCES = 4
"""Sequences per held-out block. Neighbouring sequences stay together, because a document may span several."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class TokensByExpert:
    """Token indices grouped by expert."""

    indices: Indices
    """Token indices, [P], expert by expert."""
    offsets: Indices
    """Offset of each expert's first index, [N + 1]."""

    def for_expert(self, expert: int) -> Indices:
        """Token indices of one expert, ascending."""
        return self.indices[self.offsets[expert] : self.offsets[expert + 1]]

    @classmethod
    def from_pairs(cls, expert_P: Indices, token_P: Indices, num_experts: int) -> TokensByExpert:
        """Group (expert, token) pairs by expert and drop duplicates."""
        if len(expert_P) != len(token_P):
            raise DamagedDatabaseError
        # One number per pair: sorting rows of pairs takes ten times as long.
        num_tokens = int(token_P.max(initial=0)) + 1
        pairs_P = np.sort(expert_P * num_tokens + token_P)
        is_first_P = np.append(True, pairs_P[1:] != pairs_P[:-1])[
            : len(pairs_P)
        ]  # as np.unique, in a fifth of the time
        expert_P, token_P = np.divmod(pairs_P[is_first_P], num_tokens)
        return cls(token_P, np.searchsorted(expert_P, np.arange(num_experts + 1)))


@dataclass(frozen=True)
class Corpus:
    """Features of every stored token, and the tokens on which each expert is active."""

    extractor: FeatureExtractor
    features_FT: NDArray[np.int32]
    held_out_T: NDArray[np.bool_]
    """True for tokens that are held out for testing."""
    examples: TokensByExpert
    """Peak tokens of each expert's stored examples."""
    sample: Indices
    """All tokens of the routed sample, ascending."""
    active: TokensByExpert
    """Tokens of the sample on which each expert is active."""
    density_N: NDArray[np.float64]


def read_corpus(session: Session, run: RunRecord, tokenizer: PreTrainedTokenizerBase, callbacks: Callbacks) -> Corpus:
    """Read the data for labelling.

    Raises:
        UserError: the run is not indexed.
        CancelledError: the task was cancelled.
    """
    density = np.array(
        session.scalars(
            select(ExpertRecord.density).where(ExpertRecord.run_id == run.id).order_by(ExpertRecord.expert)
        ).all()
    )
    sequence_ids, sequences = _sequences(session, run)
    if not len(density) or not sequence_ids:
        raise UserError(f"{run.name} is not indexed. Run: mxd index {run.name}")
    lengths = np.array([len(ids) for ids in sequences])
    starts = np.concatenate([[0], lengths.cumsum()])
    offsets = np.full(max(sequence_ids) + 1, -1)
    offsets[sequence_ids] = starts[:-1]
    start_token = start_token_id(tokenizer, run.config["text"].get("start_token"))
    extractor = FeatureExtractor(str(tokenizer.convert_ids_to_tokens(start_token)))
    features_FT = _extract_features(extractor, tokenizer, sequences, starts, callbacks)
    sample, active = _sample(session, run, offsets)
    return Corpus(
        extractor=extractor,
        features_FT=features_FT,
        held_out_T=np.repeat(np.array(sequence_ids) // BLOCK_SEQUENCES % 2 == 1, lengths),
        examples=_examples(session, run, offsets),
        sample=sample,
        active=active,
        density_N=density,
    )


def _sequences(session: Session, run: RunRecord) -> tuple[list[int], list[Indices]]:
    query = select(SequenceRecord.sequence, SequenceRecord.token_ids).where(SequenceRecord.run_id == run.id)
    rows = session.execute(query.order_by(SequenceRecord.sequence)).all()
    return [row.sequence for row in rows], [np.frombuffer(row.token_ids, TOKEN_IDS).astype(np.int64) for row in rows]


def _extract_features(
    extractor: FeatureExtractor,
    tokenizer: PreTrainedTokenizerBase,
    sequences: Sequence[Indices],
    starts: Indices,
    callbacks: Callbacks,
) -> NDArray[np.int32]:
    features_FT = np.zeros((len(FEATURES), starts[-1]), np.int32)
    for number, ids in enumerate(sequences):
        callbacks.check_cancelled()
        features_FT[:, starts[number] : starts[number + 1]] = extractor.extract(token_texts(tokenizer, ids.tolist()))
    return features_FT


def _examples(session: Session, run: RunRecord, offsets: Indices) -> TokensByExpert:
    query = select(ExampleRecord.expert, ExampleRecord.sequence, ExampleRecord.position)
    rows = session.execute(query.where(ExampleRecord.run_id == run.id))
    # np.array on rows of SQLAlchemy asks each for its attributes.
    values_R3 = np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, 3)
    experts_R, sequences_R, positions_R = values_R3.T
    return TokensByExpert.from_pairs(experts_R, offsets[sequences_R] + positions_R, run.num_experts)


def _sample(session: Session, run: RunRecord, offsets: Indices) -> tuple[Indices, TokensByExpert]:
    tokens, experts, active_tokens = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    query = select(RoutedRecord).where(RoutedRecord.run_id == run.id).order_by(RoutedRecord.sequence)
    for record in session.scalars(query):
        counts, active = unpack_routed(record.counts, record.experts, run.num_experts)
        indices = offsets[record.sequence] + np.arange(len(counts))
        tokens.append(indices)
        experts.append(active)
        active_tokens.append(np.repeat(indices, counts))
    return np.concatenate(tokens), TokensByExpert.from_pairs(
        np.concatenate(experts), np.concatenate(active_tokens), run.num_experts
    )
