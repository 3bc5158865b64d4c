"""Text as a stream of documents, and as token sequences of equal length that are packed from them.

A text is a file, a folder of files or a Hugging Face Hub dataset. Only a bounded part of it is in memory at any time.

The start token precedes each text. Documents of token ids are packed as they are. A document may continue in the next
sequence. The same text, tokenizer, order and seed give the same sequences, from any starting point. From a
``TextPosition``, what comes before is read but not tokenised.

Shapes: B sequences in a batch, C tokens in a sequence (``config.context_length``).
"""

from __future__ import annotations

import os
import random
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from glob import glob
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxd.trainer.config.base import Config
from mxd.trainer.config.training import TextConfig
from mxd.trainer.data.readers import (
    Document,
    TextFile,
    can_be_divided,
    column_index,
    document_of,
    file_errors,
    is_supported,
    is_url,
    pieces,
    read_documents,
    read_piece,
    remote_files,
)
from mxd.trainer.errors import NotFoundError, UsageWarning, UserError
from mxd.trainer.language_model.tokenizer import after_start, start_token_id
from mxd.trainer.utils.distributed import prefetch
from mxd.trainer.utils.files import endpoint, is_unreachable, one_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Order = Literal["as-is", "shuffled", "sampled"]
"""Document order. as-is: the order in the files, which are sorted by name. shuffled: random. sampled: as-is for files
that fit in memory, otherwise random, because the beginning of a text need not represent it."""

MOST_DOCUMENTS, MOST_CHARACTERS = 2**18, 2**25
"""Limits of files that are shuffled as a whole. A token id counts as four characters."""
BUFFER_DOCUMENTS, BUFFER_CHARACTERS = 2**12, 2**25
"""Limits of the shuffle buffer of a larger text. A single document may exceed the limit on characters."""
OPEN_PIECES = 64
"""Pieces of larger files that are read at the same time."""
PIECE_BYTES, MOST_PIECES = 2**16, 2**18
"""Size of a piece; larger ones if there would be too many."""
MOST_BYTES_IN_PASSES = 2**32
"""Size of files that are read several times because they cannot be divided: the first pass takes a minute or two."""

_EDGE_BYTES = 2**20
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.+-]+)?", re.ASCII)


def documents(config: TextConfig, order: Order = "as-is", seed: int = 0) -> Iterator[Document]:
    """Yield the documents of a text, except blank ones. The same order and seed give the same documents.

    A .txt file is one document, or several if it is long. Other formats hold one document per line or row, in
    ``config.column``. Hub datasets are streamed; NAME:SUBSET selects a subset.

    In random order, files of up to 32 MiB are shuffled as a whole. Larger ones are divided into pieces (see
    ``readers.pieces``). 64 pieces at a time, in random order, fill a shuffle buffer of 4,096 documents, so that the
    first documents come from everywhere in the text. Compressed and .csv files of up to 4 GiB, which can be read only
    from their beginning, are read several times instead (see ``_in_passes``). The shards of a Hub dataset are read one
    by one, in random order.

    Raises:
        NotFoundError: immediately, if a path does not exist.
        UserError: immediately, if there is no supported file. During iteration, if a file is damaged, has no such
            column, or the text has no documents.
    """
    files = None if _is_hub_name(config.dataset) else _files(config.dataset)
    return _documents(config, files, order, seed)


def _documents(config: TextConfig, files: Sequence[TextFile] | None, order: Order, seed: int) -> Iterator[Document]:
    rng = random.Random(seed)
    if order == "as-is":
        stream = _hub_documents(config) if files is None else _in_turn(files, config.column)
    elif files is None:
        stream = _shuffled(_hub_documents(config, seed), rng)
    else:
        # Sorted by random(), which unlike shuffle() gives the same numbers in every Python version.
        ordered = sorted(files, key=lambda _: rng.random()) if order == "shuffled" else files
        whole = _in_turn(ordered, config.column)
        first = list(_up_to_the_limits(whole))
        if next(whole, None) is None:
            stream = iter(first) if order == "sampled" else _emptied(first, rng)
        elif (
            len(files) < OPEN_PIECES
            and not all(can_be_divided(path) for path in files)
            and _total_bytes(files) <= MOST_BYTES_IN_PASSES
        ):  # few files hold a text of which a part can be read only after all before it
            del first, whole  # the first pass holds as much
            stream = _in_passes(lambda: _in_turn(ordered, config.column), rng)
        else:
            stream = _shuffled(_mixed(ordered, config.column, rng), rng)
    empty = True
    for document in stream:
        empty = False
        yield document
    if empty:
        raise UserError(f"{config.dataset} holds no documents, or only empty ones. Choose a dataset with text.")


def _in_turn(files: Sequence[TextFile], column: str) -> Iterator[Document]:
    return filter(_is_not_blank, chain.from_iterable(read_documents(path, column) for path in files))


def _is_not_blank(document: Document) -> bool:
    return bool(document) and not (isinstance(document, str) and document.isspace())


# ---------------------------------------------------------------- random order


def _up_to_the_limits(stream: Iterator[Document]) -> Iterator[Document]:
    characters = 0
    for document in islice(stream, MOST_DOCUMENTS):
        yield document
        characters += _characters(document)
        if characters > MOST_CHARACTERS:
            return


def _mixed(files: Sequence[TextFile], column: str, rng: random.Random) -> Iterator[Document]:
    """Documents of several pieces at a time, which follow one another in random order."""
    size = max(PIECE_BYTES, _total_bytes(files) // MOST_PIECES)
    divided = [pieces(path, size) for path in files]
    long = next((path for path in files if not can_be_divided(path) and path.stat().st_size > size), None)
    if long is not None and len(files) < OPEN_PIECES:
        warnings.warn(
            f"{long} can be read only from its beginning, and the files are too large to be read several times, so a "
            "sample holds its first documents. Save it as uncompressed .jsonl or as .parquet.",
            UsageWarning,
            stacklevel=2,
        )
    waiting = iter(sorted(chain.from_iterable(divided), key=lambda _: rng.random()))
    reading = [read_piece(piece, column) for piece in islice(waiting, OPEN_PIECES)]
    while reading:
        index = int(rng.random() * len(reading))
        document = next(reading[index], None)
        if document is not None:
            if _is_not_blank(document):
                yield document
        elif piece := next(waiting, None):
            reading[index] = read_piece(piece, column)
        else:
            reading[index] = reading[-1]
            reading.pop()


def _total_bytes(files: Sequence[TextFile]) -> int:
    return sum(path.stat().st_size for path in files)


def _in_passes(read: Callable[[], Iterator[Document]], rng: random.Random) -> Iterator[Document]:
    """Documents in random order of a text that can be read only from its beginning, in several passes over it. Every
    document has a random key. The first pass yields those with the smallest keys that fit in memory: a sample of the
    whole text. Each further pass yields as large a share as all before it, so there are few."""
    seed = rng.random()
    kept: list[tuple[float, int, Document]] = []  # a heap, the largest key first
    characters, bound = 0, 1.0
    for number, (key, document) in enumerate(_keyed(read(), seed)):
        if key >= bound:
            continue
        heappush(kept, (-key, number, document))
        characters += _characters(document)
        while len(kept) > MOST_DOCUMENTS or (characters > MOST_CHARACTERS and len(kept) > 1):
            largest, _, dropped = heappop(kept)
            characters -= _characters(dropped)
            bound = -largest
    first = [document for _, _, document in kept]
    del kept  # further passes need the memory
    yield from _emptied(first, rng)
    while bound < 1:
        low, bound = bound, 2 * bound
        yield from _shuffled((document for key, document in _keyed(read(), seed) if low <= key < bound), rng)


def _keyed(stream: Iterator[Document], seed: float) -> Iterator[tuple[float, Document]]:
    """Documents with the random keys in [0, 1) that they have in every pass."""
    keys = random.Random(seed)
    return ((keys.random(), document) for document in stream)


def _characters(document: Document) -> int:
    return len(document) * (1 if isinstance(document, str) else 4)


def _shuffled(stream: Iterable[Document], rng: random.Random) -> Iterator[Document]:
    buffer: list[Document] = []
    characters = 0
    for document in stream:
        buffer.append(document)
        characters += len(document)
        while len(buffer) > BUFFER_DOCUMENTS or (characters > BUFFER_CHARACTERS and len(buffer) > 1):
            popped = _pop_random(buffer, rng)
            characters -= len(popped)
            yield popped
    yield from _emptied(buffer, rng)


def _emptied(buffer: list[Document], rng: random.Random) -> Iterator[Document]:
    while buffer:
        yield _pop_random(buffer, rng)


def _pop_random(buffer: list[Document], rng: random.Random) -> Document:
    index = int(rng.random() * len(buffer))
    buffer[index], buffer[-1] = buffer[-1], buffer[index]
    return buffer.pop()


# ---------------------------------------------------------------- local files


def _is_hub_name(text: str) -> bool:
    # os.path.exists, because Path.exists raises if a long text was given instead of a name.
    if os.path.exists(os.path.expanduser(text)) or text.startswith((".", "~")) or is_supported(text):
        return False
    return bool(_HUB_NAME.fullmatch(text))


def _files(text: str) -> Sequence[TextFile]:
    if is_url(text):
        remote = [file for _, file in sorted(remote_files(text).items()) if is_supported(file.name)]
        if not remote:
            raise UserError(f"{text} holds no .txt, .jsonl, .csv or .parquet files.")
        return remote
    path = Path(os.path.expanduser(text))
    if not os.path.exists(path) and set("*?[") & set(text):
        found = map(Path, glob(str(path), recursive=True))
        files = {file for file in found if is_supported(file.name) and file.is_file()}
        if not files:
            raise NotFoundError(
                f"No .txt, .jsonl, .csv or .parquet file matches '{str(path)[:300]}'. Check the pattern."
            )
        return sorted(files, key=lambda file: file.parts)
    if not text.strip() or not os.path.exists(path):
        raise NotFoundError(
            f"There is no file or folder '{text[:300]}'. Give a .txt, .jsonl, .csv or .parquet file "
            "(also .gz or .zst), a folder or pattern (*) of them, a URL (hf://, s3://), or the name of a Hub dataset."
        )
    if path.is_dir():
        # At any depth, except hidden ones, which editors, version control and downloads create.
        inside = ((file.relative_to(path).parts, file) for file in path.rglob("*") if is_supported(file.name))
        visible = [pair for pair in inside if pair[1].is_file() and not any(part.startswith(".") for part in pair[0])]
        if not visible:
            raise UserError(f"The folder {path} holds no .txt, .jsonl, .csv or .parquet files.")
        return [file for _, file in sorted(visible)]
    if not is_supported(path.name):
        raise UserError(
            f"Unsupported file: {path}. Give a .txt, .jsonl or .csv file (also .gz or .zst), or a .parquet file."
        )
    return [path]


def fingerprint(config: TextConfig) -> str:
    """Fingerprint of a text, 32 hexadecimal digits, independent of the folder it is in.

    Covers the column and each file's name, size, first MiB and last MiB. For a Hub dataset or a URL it covers only the
    name and split, so it needs no network. A renamed or recompressed copy has another fingerprint. Raises UserError as
    ``documents`` raises immediately, or a file cannot be read.
    """
    digest = blake2b(config.column.encode(), digest_size=16)
    if is_url(config.dataset) or _is_hub_name(config.dataset):
        digest.update(f"\0{config.dataset}\0{config.split}".encode())
        return digest.hexdigest()
    root = Path(os.path.expanduser(config.dataset))
    for path in _files(config.dataset):
        assert isinstance(path, Path)
        name = path.relative_to(root) if root.is_dir() else path.name
        with file_errors(path), path.open("rb") as file:
            size = path.stat().st_size
            digest.update(f"\0{name}\0{size}\0".encode(errors="surrogateescape"))
            digest.update(file.read(_EDGE_BYTES))
            file.seek(max(0, size - _EDGE_BYTES))
            digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()


# ---------------------------------------------------------------- Hugging Face Hub


def _hub_documents(config: TextConfig, seed: int | None = None) -> Iterator[Document]:
    """Documents in the order of the dataset, or with its shards in an order drawn with ``seed``."""
    # Slow to import, and rarely needed.
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # re-exported from the HTTP client

    if is_unreachable():
        raise UserError(
            f"Cannot fetch the dataset '{config.dataset}', which is not a local file: the Hub ({endpoint()}) does not "
            "answer. Check the network, or give a file."
        )
    name, _, subset = config.dataset.partition(":")
    where = f"the dataset {config.dataset}"
    try:
        rows = load_dataset(name, subset or None, split=config.split, streaming=True)
        if seed is not None:
            rows = rows.shuffle(seed, buffer_size=1)  # the buffer would shuffle rows
        if rows.column_names is not None:
            column_index(config.column, rows.column_names, where)
            rows = rows.select_columns([config.column])
        for row in rows:
            column_index(config.column, row, where)
            document = document_of(row[config.column], config.column, where)
            if _is_not_blank(document):
                yield document
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError, DatasetsError, HTTPError) as error:
        raise UserError(
            f"Cannot read the dataset '{config.dataset}' from the Hub: {one_line(error)}. Check the network, the split "
            "and the name (NAME:SUBSET for a dataset with several), or give a file."
        ) from error


# ---------------------------------------------------------------- sequences

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
    limit = min(_MAX_COUNTED_BYTES, _AMPLE_BYTES_PER_TOKEN * required)
    # The files are listed in any case, because a path that does not exist is an error.
    is_ample = _is_hub_name(config.dataset) or _total_bytes(_files(config.dataset)) >= limit
    if is_ample or config.on_short_text == "repeat":
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
    # Not verbose: no warnings about documents longer than the context.
    unused = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=False, **unused)["input_ids"]
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
