"""Text as a stream of documents, from a file, a folder of files or a Hugging Face Hub dataset.

Only a bounded part of the text is in memory at any time.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Literal

from mxd.trainer.config import TextConfig
from mxd.trainer.data.readers import (
    Document,
    column_index,
    document_of,
    file_errors,
    is_supported,
    one_line,
    read_documents,
)
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.utils import hub

Order = Literal["as-is", "shuffled"]
"""Document order. as-is: the order in the files, which are sorted by name. shuffled: random, by a shuffle buffer."""

BUFFER_DOCUMENTS = 4096
BUFFER_CHARACTERS = 2**25
"""Limits of the shuffle buffer. A single document may exceed the limit on characters."""

_EDGE_BYTES = 2**20
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.+-]+)?", re.ASCII)


def documents(config: TextConfig, order: Order = "as-is", seed: int = 0) -> Iterator[Document]:
    """Yield the documents of a text, except blank ones. The same order and seed give the same documents.

    A .txt file is one document, or several if it is long. Other formats hold one document per line or row, in
    ``config.column``. Hub datasets are streamed; NAME:SUBSET selects a subset.

    Raises:
        NotFoundError: immediately, if a path does not exist.
        UserError: immediately, if there is no supported file. During iteration, if a file is damaged, has no such
            column, or the text has no documents.
    """
    files = None if _is_hub_name(config.dataset) else _files(config.dataset)
    return _documents(config, files, order, random.Random(seed))


def _documents(config: TextConfig, files: list[Path] | None, order: Order, rng: random.Random) -> Iterator[Document]:
    if files is None:
        stream = _hub_documents(config)
    else:
        # Sorted by random(), which unlike shuffle() gives the same numbers in every Python version.
        ordered = sorted(files, key=lambda _: rng.random()) if order == "shuffled" else files
        stream = chain.from_iterable(read_documents(path, config.column) for path in ordered)
    stream = (document for document in stream if document and not _is_blank(document))
    empty = True
    for document in _shuffled(stream, rng) if order == "shuffled" else stream:
        empty = False
        yield document
    if empty:
        raise UserError(f"{config.dataset} holds no documents, or only empty ones. Give --dataset a file with text.")


def _is_blank(document: Document) -> bool:
    return isinstance(document, str) and document.isspace()


def _shuffled(stream: Iterable[Document], rng: random.Random) -> Iterator[Document]:
    buffer: list[Document] = []
    characters = 0

    def pop_random() -> Document:
        index = int(rng.random() * len(buffer))
        buffer[index], buffer[-1] = buffer[-1], buffer[index]
        return buffer.pop()

    for document in stream:
        buffer.append(document)
        characters += len(document)
        while len(buffer) > BUFFER_DOCUMENTS or (characters > BUFFER_CHARACTERS and len(buffer) > 1):
            popped = pop_random()
            characters -= len(popped)
            yield popped
    while buffer:
        yield pop_random()


# ---------------------------------------------------------------- local files


def _is_hub_name(text: str) -> bool:
    # os.path.exists, because Path.exists raises if a long text was given instead of a name.
    if os.path.exists(os.path.expanduser(text)) or text.startswith((".", "~")) or is_supported(text):
        return False
    return bool(_HUB_NAME.fullmatch(text))


def _files(text: str) -> list[Path]:
    path = Path(os.path.expanduser(text))
    if not text.strip() or not os.path.exists(path):
        raise NotFoundError(
            f"There is no file or folder '{text[:300]}'. Give --dataset a .txt, .jsonl, .csv or .parquet file "
            "(also .gz or .zst), a folder of them, or the name of a Hub dataset."
        )
    if path.is_dir():
        files = sorted(_supported_files(path), key=lambda file: file.relative_to(path).parts)
        if not files:
            raise UserError(f"The folder {path} holds no .txt, .jsonl, .csv or .parquet files.")
        return files
    if not is_supported(path.name):
        raise UserError(
            f"Unsupported file: {path}. Give a .txt, .jsonl or .csv file (also .gz or .zst), or a .parquet file."
        )
    return [path]


def _supported_files(folder: Path) -> Iterator[Path]:
    """Supported files at any depth, except hidden ones, which editors, version control and downloads create."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and is_supported(path.name) and path.is_file():
            yield path


def size_bytes(config: TextConfig) -> int | None:
    """Size of the text's files on disk, in bytes; None for a Hub dataset.

    Raises:
        NotFoundError, UserError: as ``documents`` raises immediately.
    """
    return None if _is_hub_name(config.dataset) else sum(path.stat().st_size for path in _files(config.dataset))


def fingerprint(config: TextConfig) -> str:
    """Fingerprint of a text, 32 hexadecimal digits, independent of the folder it is in.

    Covers the column and each file's name, size, first MiB and last MiB. For a Hub dataset it covers only the name and
    split, so it needs no network. A renamed or recompressed copy has another fingerprint.

    Raises:
        UserError: as ``documents`` raises immediately, or a file cannot be read.
    """
    digest = blake2b(config.column.encode(), digest_size=16)
    if _is_hub_name(config.dataset):
        digest.update(f"\0{config.dataset}\0{config.split}".encode())
        return digest.hexdigest()
    root = Path(os.path.expanduser(config.dataset))
    for path in _files(config.dataset):
        name = path.relative_to(root) if path != root else path.name
        with file_errors(path), path.open("rb") as file:
            size = path.stat().st_size
            digest.update(f"\0{name}\0{size}\0".encode(errors="surrogateescape"))
            digest.update(file.read(_EDGE_BYTES))
            file.seek(max(0, size - _EDGE_BYTES))
            digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()


# ---------------------------------------------------------------- Hugging Face Hub


def _hub_documents(config: TextConfig) -> Iterator[Document]:
    # Slow to import, and rarely needed.
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # re-exported from the HTTP client

    if hub.is_unreachable():
        raise UserError(
            f"Cannot fetch the dataset '{config.dataset}', which is not a local file: the Hub ({hub.endpoint()}) does not "
            "answer. Check the network, or give --dataset a file."
        )
    name, _, subset = config.dataset.partition(":")
    where = f"the dataset {config.dataset}"
    try:
        rows = load_dataset(name, subset or None, split=config.split, streaming=True)
        if rows.column_names is not None:
            column_index(config.column, rows.column_names, where)
            rows = rows.select_columns([config.column])
        for row in rows:
            column_index(config.column, row, where)
            yield document_of(row[config.column], config.column, where)
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError, DatasetsError, HTTPError) as error:
        raise UserError(
            f"Cannot read the dataset '{config.dataset}' from the Hub: {one_line(error)}. Check the network, --split and "
            "the name (NAME:SUBSET for a dataset with several), or give --dataset a file."
        ) from error
