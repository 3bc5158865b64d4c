"""Real text as a stream of documents: from a file, a folder of files, or a data set on the hub.

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

from trainer import hub
from trainer.config import TextConfig
from trainer.errors import NotFoundError, UserError
from trainer.readers import is_known, one_line, place_of, read, reading, text_of

Order = Literal["as-is", "shuffled"]
"""as-is: as they stand, the files of a folder by name. shuffled: at random, within a buffer that moves over them."""

BUFFER_DOCUMENTS = 4096
BUFFER_CHARACTERS = 2**25
"""The shuffle holds at most so many documents and, unless it holds only one, so many characters."""

_EDGE_BYTES = 2**20
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.+-]+)?", re.ASCII)


def documents(config: TextConfig, order: Order = "as-is", seed: int = 0) -> Iterator[str]:
    """The documents of a text that hold more than white space. The same order and seed give the same documents.

    A .txt file is a document (a long one is cut into several); the other kinds hold one a line or row, in
    ``config.column``. Of a data set on the hub only what is read is downloaded; NAME:SUBSET names one of its subsets.

    Raises:
        NotFoundError: at once, where a path does not exist.
        UserError: at once, where there is no file of a known kind; while reading, where something is damaged, has no
            such column, or holds no documents at all.
    """
    files = None if _is_hub_name(config.text) else _files(config.text)
    return _documents(config, files, order, random.Random(seed))


def _documents(config: TextConfig, files: list[Path] | None, order: Order, rng: random.Random) -> Iterator[str]:
    if files is None:
        found = _hub_documents(config)
    else:
        # Sorted by random(): unlike shuffle(), it promises the same numbers in every Python version.
        chosen = sorted(files, key=lambda _: rng.random()) if order == "shuffled" else files
        found = chain.from_iterable(read(path, config.column) for path in chosen)
    found = (document for document in found if document and not document.isspace())
    empty = True
    for document in _shuffled(found, rng) if order == "shuffled" else found:
        empty = False
        yield document
    if empty:
        raise UserError(f"{config.text} holds no documents, or only empty ones; give --text with text in it.")


def _shuffled(found: Iterable[str], rng: random.Random) -> Iterator[str]:
    held: list[str] = []
    characters = 0

    def take() -> str:
        place = int(rng.random() * len(held))
        held[place], held[-1] = held[-1], held[place]
        return held.pop()

    for document in found:
        held.append(document)
        characters += len(document)
        while len(held) > BUFFER_DOCUMENTS or (characters > BUFFER_CHARACTERS and len(held) > 1):
            taken = take()
            characters -= len(taken)
            yield taken
    while held:
        yield take()


# ---------------------------------------------------------------- which files


def _is_hub_name(text: str) -> bool:
    # os.path.exists, because Path.exists raises where a whole text was given by mistake for a name.
    if os.path.exists(os.path.expanduser(text)) or text.startswith((".", "~")) or is_known(text):
        return False
    return bool(_HUB_NAME.fullmatch(text))


def _files(text: str) -> list[Path]:
    path = Path(os.path.expanduser(text))
    if not text.strip() or not os.path.exists(path):
        raise NotFoundError(
            f"There is no file or folder '{text[:300]}'; give --text with a .txt, .jsonl, .csv or .parquet file "
            "(also .gz or .zst), a folder of them, or the name of a data set on the hub."
        )
    if path.is_dir():
        found = sorted(_known_files(path), key=lambda file: file.relative_to(path).parts)
        if not found:
            raise UserError(f"The folder {path} holds no .txt, .jsonl, .csv or .parquet files; give one that does.")
        return found
    if not is_known(path.name):
        raise UserError(
            f"{path} is of no known kind; give a .txt, .jsonl or .csv file (also .gz or .zst), or a .parquet file."
        )
    return [path]


def _known_files(folder: Path) -> Iterator[Path]:
    """At any depth, hidden files and folders left out: editors, version control and downloads keep theirs there."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and is_known(path.name) and path.is_file():
            yield path


def size_bytes(config: TextConfig) -> int | None:
    """Of its files, as they lie on disk; None of a data set on the hub.

    Raises:
        NotFoundError, UserError: as ``documents`` does at once.
    """
    return None if _is_hub_name(config.text) else sum(path.stat().st_size for path in _files(config.text))


def fingerprint(config: TextConfig) -> str:
    """32 hexadecimal digits that tell one text from another, whatever folder it lies in.

    Covers the column and, of each file, its name, its size, and its first and last MiB; of a data set on the hub only
    its name and split, so no network is needed. A renamed or newly compressed copy counts as another text.

    Raises:
        UserError: as ``documents`` does at once, or where a file cannot be read.
    """
    digest = blake2b(config.column.encode(), digest_size=16)
    if _is_hub_name(config.text):
        digest.update(f"\0{config.text}\0{config.split}".encode())
        return digest.hexdigest()
    root = Path(os.path.expanduser(config.text))
    for path in _files(config.text):
        name = path.relative_to(root) if path != root else path.name
        with reading(path), path.open("rb") as file:
            size = path.stat().st_size
            digest.update(f"\0{name}\0{size}\0".encode(errors="surrogateescape"))
            digest.update(file.read(_EDGE_BYTES))
            file.seek(max(0, size - _EDGE_BYTES))
            digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()


# ---------------------------------------------------------------- the hub


def _hub_documents(config: TextConfig) -> Iterator[str]:
    # Slow to import, and wanted by few.
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of whichever client it is built on

    if hub.out_of_reach():
        raise UserError(
            f"The data set {config.text} is no file or folder here, and the hub ({hub.endpoint()}) does not answer; "
            "check the network, or give --text with a file."
        )
    name, _, subset = config.text.partition(":")
    where = f"the data set {config.text}"
    try:
        rows = load_dataset(name, subset or None, split=config.split, streaming=True)
        if rows.column_names is not None:
            place_of(config.column, rows.column_names, where)
            rows = rows.select_columns([config.column])
        for row in rows:
            place_of(config.column, row, where)
            yield text_of(row[config.column], config.column, where)
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError, DatasetsError, HTTPError) as error:
        raise UserError(
            f"The data set {config.text} cannot be read from the hub ({one_line(error)}); check the network, --split "
            "and the name, which is NAME:SUBSET where a data set has several, or give --text with a file."
        ) from error
