"""Text as token sequences: documents, one after the other, cut into sequences of equal length.

The separator token stands before each document, and a document may go on in the next sequence. The same text,
tokenizer, order and seed give the same sequences, from whichever one on they are wanted.

Shapes: B sequences of a block, C tokens of a sequence (``config.context``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain, count, islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trainer.ahead import ahead
from trainer.config import TextConfig
from trainer.documents import Order, documents, fingerprint, size_bytes
from trainer.errors import UserError
from trainer.tokens import separator_id

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Order", "blocks", "documents", "fingerprint", "refuse_short", "sequences", "token_ids"]

_BATCH_DOCUMENTS = 64
_BATCH_CHARACTERS = 2**18
_BATCHES_AHEAD = 4
_SEEDS = 2**31
_PLENTY_BYTES_A_TOKEN = 16
_COUNTED_BYTES = 2**26


def sequences(
    config: TextConfig, tokenizer: PreTrainedTokenizerBase, tokens: int, seed: int, order: Order, skip: int = 0
) -> Iterator[npt.NDArray[np.int32]]:
    """Sequences [C] of token ids: as many as fit into ``tokens``, at least one.

    Args:
        config: which text, and what to do where it is short. On each repetition it is shuffled anew.
        tokenizer: special tokens that it would add are left out.
        tokens: wanted, those of the skipped sequences included.
        seed: of the order; from 0 to 2**31 - 1.
        order: of the documents.
        skip: start at this sequence, with the same ones as if those before had been taken.

    Raises:
        NotFoundError: at once, where a path does not exist.
        UserError: at once, where the tokenizer has no separator or there is no file of a known kind; later, where the
            text ends too soon or is damaged.
    """
    separator = separator_id(tokenizer)
    wanted = max(1, tokens // config.context)
    passes = chain([documents(config, order, seed)], _repetitions(config, order, seed))
    return _packed(config, _tokenised(chain.from_iterable(passes), tokenizer, separator), wanted, skip)


def refuse_short(config: TextConfig, tokenizer: PreTrainedTokenizerBase, tokens: int) -> None:
    """Refuse at once what ``sequences`` would refuse when all of the text has been worked through.

    What is doubtful by its size is read and counted, up to the wanted tokens. Not so data sets on the hub, of which
    only what is used shall be downloaded, and more than 64 MiB, which take minutes to read.

    Raises:
        UserError: the text ends before the wanted tokens, or cannot be read.
    """
    wanted = max(1, tokens // config.context) * config.context
    size = size_bytes(config)
    if config.when_short == "repeat" or size is None or size >= min(_COUNTED_BYTES, _PLENTY_BYTES_A_TOKEN * wanted):
        return
    seen = 0
    for ids in token_ids(config, tokenizer):
        seen += len(ids)
        if seen >= wanted:
            return
    raise _too_short(config, seen, wanted)


def token_ids(config: TextConfig, tokenizer: PreTrainedTokenizerBase) -> Iterator[npt.NDArray[np.int32]]:
    """Token ids of all of a text, once and in its own order, some documents at a time; the separator before each.

    Raises:
        NotFoundError, UserError: as ``sequences``; a text that is short is no mistake here.
    """
    return _tokenised(documents(config), tokenizer, separator_id(tokenizer))


def blocks(
    config: TextConfig,
    tokenizer: PreTrainedTokenizerBase,
    tokens: int,
    seed: int,
    order: Order,
    batch: int,
    skip: int = 0,
) -> Iterator[npt.NDArray[np.int64]]:
    """Blocks [B, C] of ``sequences``, which see; ``batch`` of them in each, in the last one perhaps fewer.

    ``skip`` counts sequences.
    """
    return _stacked(sequences(config, tokenizer, tokens, seed, order, skip), batch)


def _stacked(stream: Iterator[npt.NDArray[np.int32]], batch: int) -> Iterator[npt.NDArray[np.int64]]:
    while rows := list(islice(stream, batch)):
        yield np.stack(rows).astype(np.int64)


def _repetitions(config: TextConfig, order: Order, seed: int) -> Iterator[Iterator[str]]:
    if config.when_short == "repeat":
        # Seeds end below 2**31, so no repetition has the order of another run's first pass.
        yield from (documents(config, order, seed + number * _SEEDS) for number in count(1))


def _batches(found: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for document in found:
        batch.append(document)
        characters += len(document)
        if len(batch) == _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _tokenised(
    found: Iterable[str], tokenizer: PreTrainedTokenizerBase, separator: int
) -> Iterator[npt.NDArray[np.int32]]:
    """Token ids of some documents at a time, the separator before each."""
    for batch in _batches(found):
        encoded = tokenizer(
            batch,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,  # documents longer than the language model reads are no mistake here
        )
        rows = (chain([separator], ids) for ids in encoded["input_ids"])
        yield np.fromiter(chain.from_iterable(rows), dtype=np.int32)


def _packed(
    config: TextConfig, tokenised: Iterator[npt.NDArray[np.int32]], wanted: int, skip: int
) -> Iterator[npt.NDArray[np.int32]]:
    if skip >= wanted:
        return
    context = config.context
    made, seen, rest = 0, 0, np.empty(0, dtype=np.int32)
    with closing(ahead(tokenised, _BATCHES_AHEAD)) as stream:
        for ids in stream:
            seen += len(ids)
            rest = np.concatenate([rest, ids])
            whole = min(len(rest) // context, wanted - made)
            for place in range(max(0, skip - made), whole):
                # A copy: whoever keeps a sequence shall not keep the batch that it was cut from.
                yield rest[place * context : (place + 1) * context].copy()
            made += whole
            rest = rest[whole * context :]
            if made == wanted:
                return
    raise _too_short(config, seen, wanted * context)


def _too_short(config: TextConfig, seen: int, wanted: int) -> UserError:
    return UserError(
        f"{config.text} has {seen:,} tokens and {wanted:,} are wanted; ask for fewer with --tokens, "
        "give more text, or read it again and again with --when-short repeat."
    )
