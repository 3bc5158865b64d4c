"""Token sequences of equal length, packed from documents.

The start token precedes each text. Documents of token ids are packed as they are. A document may continue in the next
sequence. The same text, tokenizer, order and seed give the same sequences, from any starting point. From a
``TextPosition``, what comes before is read but not tokenised.

Shapes: B sequences in a batch, C tokens in a sequence (``config.context_length``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxd.trainer.config.base import Config
from mxd.trainer.config.training import TextConfig
from mxd.trainer.data.documents import Order, documents, size_bytes
from mxd.trainer.data.readers import Document
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.tokenizer import after_start, start_token_id
from mxd.trainer.utils.distributed import prefetch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BATCH_DOCUMENTS = 64
_BATCH_CHARACTERS = 2**18
_BATCHES_AHEAD = 4
_SEEDS = 2**31
"""Number of valid seeds."""
_AMPLE_BYTES_PER_TOKEN = 16
"""File size per token above which a text is long enough without counting."""
_MAX_COUNTED_BYTES = 2**26
"""Size of the largest text whose tokens are counted: counting more takes minutes."""


class TextPosition(Config):
    """Position in a text, between two documents."""

    sequences: Annotated[int, Field(ge=0)] = 0
    """Number of sequences before it."""
    documents: Annotated[int, Field(ge=0)] = 0
    """Number of documents before it, over all repetitions."""
    rest: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...] = ()
    """Token ids of those documents that are in no sequence yet, fewer than a sequence has."""


TEXT_START = TextPosition()


@dataclass
class TextProgress:
    """How far a text has been used."""

    position: TextPosition = TEXT_START
    """Position at or before the next sequence."""


def sequences(
    config: TextConfig,
    tokenizer: PreTrainedTokenizerBase,
    tokens: int,
    seed: int,
    order: Order,
    skip: int = 0,
    progress: TextProgress | None = None,
) -> Iterator[npt.NDArray[np.int32]]:
    """Yield sequences [C] of token ids: as many as fit into ``tokens``, at least one.

    A short text may be repeated; each repetition is shuffled differently. The first ``skip`` sequences are skipped, and
    the rest are the same as without skipping. ``progress`` says where to begin, with at most ``skip`` sequences before
    it, and follows the sequences that are yielded. Seeds are from 0 to 2**31 - 1.

    Raises:
        NotFoundError: immediately, if a path does not exist.
        UserError: immediately, if the tokenizer has no start token or there is no supported file. During iteration,
            if the text is too short or damaged.
    """
    start_token = start_token_id(tokenizer, config.start_token)
    total = max(1, tokens // config.context_length)
    # Seeds are below 2**31, so no repetition has the order of another run's first pass.
    numbers = count(1) if config.on_short_text == "repeat" else ()
    repetitions = (documents(config, order, seed + number * _SEEDS) for number in numbers)
    passes = chain([documents(config, order, seed)], repetitions)
    progress = progress or TextProgress()
    left = islice(chain.from_iterable(passes), progress.position.documents, None)
    return _packed(config, _tokenised(left, tokenizer, start_token), total, skip, progress)


def check_text_length(config: TextConfig, tokenizer: PreTrainedTokenizerBase, tokens: int) -> None:
    """Check before training that the text has enough tokens. Texts that are short for their token count are tokenised
    and counted. Hub datasets and texts of more than 64 MiB are not checked, because that would download or read all of
    them. Raises UserError if the text has too few tokens, or cannot be read."""
    required = max(1, tokens // config.context_length) * config.context_length
    size = size_bytes(config)
    if (
        config.on_short_text == "repeat"
        or size is None
        or size >= min(_MAX_COUNTED_BYTES, _AMPLE_BYTES_PER_TOKEN * required)
    ):
        return
    available = 0
    for ids in tokenize_documents(config, tokenizer):
        available += len(ids)
        if available >= required:
            return
    raise _too_short(config, available, required)


def tokenize_documents(config: TextConfig, tokenizer: PreTrainedTokenizerBase) -> Iterator[npt.NDArray[np.int32]]:
    """Yield the token ids of a whole text, in order, some documents at a time. The start token precedes each document.
    Raises NotFoundError or UserError as ``sequences``, except for short texts."""
    tokenised = _tokenised(documents(config), tokenizer, start_token_id(tokenizer, config.start_token))
    return (ids for _, ids in tokenised)


def sequence_batches(
    config: TextConfig,
    tokenizer: PreTrainedTokenizerBase,
    tokens: int,
    seed: int,
    order: Order,
    batch: int,
    skip: int = 0,
    progress: TextProgress | None = None,
) -> Generator[npt.NDArray[np.int64]]:
    """Yield ``sequences`` in batches [B, C] of ``batch`` sequences. The last batch may be smaller."""
    stream = sequences(config, tokenizer, tokens, seed, order, skip, progress)
    return (np.stack(rows).astype(np.int64) for rows in iter(lambda: list(islice(stream, batch)), []))


def _batches(stream: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in stream:
        batch.append(document)
        characters += len(document)
        if len(batch) == _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _tokenised(
    stream: Iterable[Document], tokenizer: PreTrainedTokenizerBase, start_token: int
) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
    """Yield the number of documents and the token ids of some documents at a time."""
    for batch in _batches(stream):
        texts = [document for document in batch if isinstance(document, str)]
        tokenised = iter(_token_ids(texts, tokenizer) if texts else ())
        rows = (
            after_start(start_token, next(tokenised)) if isinstance(document, str) else document for document in batch
        )
        yield len(batch), np.fromiter(chain.from_iterable(rows), dtype=np.int32)


def _token_ids(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    encoded = tokenizer(
        texts,
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,  # no warnings about documents longer than the context
    )
    ids: list[list[int]] = encoded["input_ids"]
    return ids


def _packed(
    config: TextConfig,
    tokenised: Iterator[tuple[int, npt.NDArray[np.int32]]],
    total: int,
    skip: int,
    progress: TextProgress,
) -> Iterator[npt.NDArray[np.int32]]:
    if skip >= total:
        return
    context, start = config.context_length, progress.position
    produced, read, rest = start.sequences, start.documents, np.array(start.rest, dtype=np.int32)
    with closing(prefetch(tokenised, _BATCHES_AHEAD)) as stream:
        for documents_read, ids in stream:
            progress.position = TextPosition(sequences=produced, documents=read, rest=tuple(rest.tolist()))
            read += documents_read
            rest = np.concatenate([rest, ids])
            complete = min(len(rest) // context, total - produced)
            for index in range(max(0, skip - produced), complete):
                # A copy, because a view would keep the whole batch in memory.
                yield rest[index * context : (index + 1) * context].copy()
            produced += complete
            rest = rest[complete * context :]
            if produced == total:
                return
    raise _too_short(config, produced * context + len(rest), total * context)


def _too_short(config: TextConfig, available: int, required: int) -> UserError:
    return UserError(
        f"{config.dataset} has {available:,} tokens, but {required:,} are needed. Lower --tokens, give more text, or "
        "repeat it with --on-short-text=repeat."
    )
