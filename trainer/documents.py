"""Real text as a stream of documents: from a file, a folder of files, or a data set on the hub.

Nothing is read whole: a reader holds a line, a row batch or a stretch of about a million characters, and the shuffle
holds a bounded number of documents.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from trainer.config import TextConfig
from trainer.errors import NotFoundError, UserError

Order = Literal["as-is", "shuffled"]
"""as-is: as they stand, the files of a folder by name. shuffled: at random, within a buffer that moves over them."""

BUFFER_DOCUMENTS = 4096
BUFFER_CHARACTERS = 2**25
"""The shuffle holds at most so many documents and, unless it holds only one, so many characters."""

PLAIN_BYTES = 2**20
"""A .txt file longer than this is cut, at the end of a line where there is one, into several documents."""

_LINE_BYTES = 2**16
_FIELD_CHARACTERS = 2**28
_PARQUET_ROWS = 256
_EDGE_BYTES = 2**20
_COMPRESSIONS: dict[str, str | None] = {"": None, ".gz": "gzip", ".zst": "zstd"}
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?", re.ASCII)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def documents(config: TextConfig, order: Order = "as-is", seed: int = 0) -> Iterator[str]:
    """The documents of a text that hold more than white space. The same order and seed give the same documents.

    A .txt file is a document (long ones are cut); the other kinds hold one a line or row, in ``config.column``.

    Raises:
        NotFoundError: at once, where a path does not exist.
        UserError: at once, where no file of a known kind is there; while reading, where something is damaged, has no
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
        found = chain.from_iterable(_file_documents(path, config.column) for path in chosen)
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
    if os.path.exists(os.path.expanduser(text)) or text.startswith((".", "~")) or _kind(text):
        return False
    return bool(_HUB_NAME.fullmatch(text))


def _kind(name: str) -> tuple[str, str | None] | None:
    """Format and compression that a file name ends in."""
    for ending, compression in _COMPRESSIONS.items():
        for suffix in _READERS:
            if name.lower().endswith(suffix + ending) and not (suffix == ".parquet" and ending):
                return suffix, compression
    return None


def _files(text: str) -> list[Path]:
    path = Path(os.path.expanduser(text))
    if not text.strip() or not os.path.exists(path):
        raise NotFoundError(
            f"There is no file or folder '{text}'; give --text with a .txt, .jsonl, .csv or .parquet file "
            "(also .gz or .zst), a folder of them, or the name of a data set on the hub."
        )
    if path.is_dir():
        found = sorted(_known_files(path), key=lambda file: file.relative_to(path).parts)
        if not found:
            raise UserError(f"The folder {path} holds no .txt, .jsonl, .csv or .parquet files; give one that does.")
        return found
    if not _kind(path.name):
        raise UserError(
            f"{path} is of no known kind; give a .txt, .jsonl or .csv file (also .gz or .zst), or a .parquet file."
        )
    return [path]


def _known_files(folder: Path) -> Iterator[Path]:
    """At any depth, hidden files and folders left out: editors, version control and downloads keep theirs there."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and _kind(path.name) and path.is_file():
            yield path


def fingerprint(config: TextConfig) -> str:
    """32 hexadecimal digits that tell one text from another, whatever folder it lies in.

    Covers the column and, of each file, its name, its size, and its first and last MiB; of a hub data set only its name
    and split, so no network is needed. A renamed or newly compressed copy counts as another text.

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
        with _reading(path), path.open("rb") as file:
            size = path.stat().st_size
            digest.update(f"\0{name}\0{size}\0".encode(errors="surrogateescape"))
            digest.update(file.read(_EDGE_BYTES))
            file.seek(max(0, size - _EDGE_BYTES))
            digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()


# ---------------------------------------------------------------- files


def _file_documents(path: Path, column: str) -> Iterator[str]:
    kind = _kind(path.name)
    assert kind is not None
    with _reading(path):
        yield from _READERS[kind[0]](path, kind[1], column)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0].rstrip(". ") if str(error) else type(error).__name__
        raise UserError(f"{path} cannot be read ({reason}); download or copy it again.") from error


def _open(path: Path, compression: str | None) -> io.BufferedReader:
    # pyarrow's streams, because they alone notice where a .zst was cut off.
    return io.BufferedReader(pa.input_stream(str(path), compression=compression), _LINE_BYTES)


def _decoded(chunks: Iterable[bytes], path: Path) -> Iterator[tuple[int, str]]:
    """Each chunk as text, with the number of the line it starts in."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    line = 1
    for chunk, final in chain(((chunk, False) for chunk in chunks), [(b"", True)]):
        try:
            yield line, decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            broken = line + error.object[: error.start].count(b"\n")
            raise UserError(f"Line {broken} of {path} is not UTF-8; convert the file to UTF-8.") from error
        line += chunk.count(b"\n")


def _plain_documents(path: Path, compression: str | None, _column: str) -> Iterator[str]:
    with _open(path, compression) as file:
        chunks = iter(lambda: file.read(PLAIN_BYTES) + file.readline(_LINE_BYTES), b"")
        for _, text in _decoded(chunks, path):
            yield text.replace("\r\n", "\n")


def _jsonl_documents(path: Path, compression: str | None, column: str) -> Iterator[str]:
    with _open(path, compression) as file:
        for number, line in _decoded(file, path):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"Line {number} of {path} is not JSON ({error}); mend or remove it.") from error
            if not isinstance(row, dict):
                raise UserError(f"Line {number} of {path} is no JSON object; give one {{\"{column}\": …}} a line.")
            text = _field(row, column, f"line {number} of {path}")
            # JSON can escape half of a pair of surrogates, which no encoding and no tokenizer takes.
            yield _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text) if "\\u" in line else text


def _csv_documents(path: Path, compression: str | None, column: str) -> Iterator[str]:
    # The limit is there to find quotes that never close, and the csv module keeps one for all; the default is too low.
    csv.field_size_limit(_FIELD_CHARACTERS)
    with _open(path, compression) as file:
        rows = csv.reader((line for _, line in _decoded(file, path)), strict=True)
        try:
            header = next((row for row in rows if row), None)
            place = _place(header, column, str(path)) if header else 0
            for row in rows:
                if place < len(row):
                    yield row[place]
        except csv.Error as error:
            raise UserError(
                f"Line {rows.line_num} of {path} is not CSV ({error}); look for a quote that does not close."
            ) from error


def _parquet_documents(path: Path, _compression: str | None, column: str) -> Iterator[str]:
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=PLAIN_BYTES) as file:
        _place(file.schema_arrow.names, column, str(path))
        try:
            for batch in file.iter_batches(_PARQUET_ROWS, columns=[column]):
                for value in batch.column(0).to_pylist():
                    yield _text(value, column, str(path))
        except UnicodeDecodeError as error:
            raise UserError(f"The column '{column}' of {path} is not UTF-8; write it as strings.") from error


_READERS: dict[str, Callable[[Path, str | None, str], Iterator[str]]] = {
    ".txt": _plain_documents,
    ".jsonl": _jsonl_documents,
    ".csv": _csv_documents,
    ".parquet": _parquet_documents,
}


# ---------------------------------------------------------------- columns


def _place(names: Iterable[str], column: str, where: str) -> int:
    there = list(names)
    if column not in there:
        listed = ", ".join(f"'{name}'" for name in there[:20]) or "none"
        raise UserError(f"There is no column '{column}' in {where}; name one of these with --column: {listed}.")
    return there.index(column)


def _field(row: dict[str, Any], column: str, where: str) -> str:
    if column not in row:
        _place(row, column, where)
    return _text(row[column], column, where)


def _text(value: object, column: str, where: str) -> str:
    """The text of a value; a missing one (null) is an empty document."""
    if not isinstance(value, str | None):
        raise UserError(
            f"The column '{column}' of {where} holds {type(value).__name__}, not text; name another with --column."
        )
    return value or ""


# ---------------------------------------------------------------- the hub


def _hub_documents(config: TextConfig) -> Iterator[str]:
    """Streamed: only what is read is downloaded."""
    # Slow to import, and wanted by few.
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the client that it happens to use

    name, _, subset = config.text.partition(":")
    where = f"the data set {config.text}"
    try:
        rows = load_dataset(name, subset or None, split=config.split, streaming=True)
        if rows.column_names is not None:
            _place(rows.column_names, config.column, where)
            rows = rows.select_columns([config.column])
        for row in rows:
            yield _field(row, config.column, where)
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError, DatasetsError, HTTPError) as error:
        reason = str(error).splitlines()[0].rstrip(". ") if str(error) else type(error).__name__
        raise UserError(
            f"The data set {config.text} cannot be read from the hub ({reason}); "
            "check its name, --split and the network, or give --text with a file."
        ) from error
