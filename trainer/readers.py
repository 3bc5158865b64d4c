"""Files of text, as documents: one reader for each format.

A reader holds a line, a row batch or a stretch of about a million characters, never the whole file. Whatever is wrong
with a file is a ``UserError`` that names the file and, where there are lines, the line.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trainer.errors import UserError

PLAIN_BYTES = 2**20
"""A .txt file longer than this is cut, at the end of a line where one is near, into several documents."""

COMPRESSIONS: dict[str, str | None] = {"": None, ".gz": "gzip", ".zst": "zstd"}
"""Ending of a file name, after the format's, to its compression."""

_LINE_BYTES = 2**16
_MOST_LINE_BYTES = 2**26
_MOST_FIELD_CHARACTERS = 2**26
"""A compressed file of a few kilobytes may hold a line that fills the memory."""
_PARQUET_ROWS = 256
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def is_known(name: str) -> bool:
    """Whether a file of this name can be read."""
    return _kind(name) is not None


def read(path: Path, column: str) -> Iterator[str]:
    """The documents of a file, empty ones included: lines or rows of ``column``, or a .txt file itself.

    Raises:
        UserError: while reading, where the file is damaged or has no such column.
    """
    kind = _kind(path.name)
    assert kind is not None
    suffix, compression = kind
    with reading(path):
        yield from _READERS[suffix](path, compression, column)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what goes wrong with a file into a sentence."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be read ({one_line(error)}); download or copy it again.") from error


def one_line(error: Exception) -> str:
    """What an error says, fit to stand inside a sentence."""
    return " ".join(str(error).split())[:300].rstrip(".:; ") or type(error).__name__


def place_of(column: str, names: Iterable[str], where: str) -> int:
    """Which of ``names`` is ``column``, from 0.

    Raises:
        UserError: none of them.
    """
    there = list(names)
    if column not in there:
        listed = ", ".join(f"'{name}'" for name in there[:20]) or "none"
        raise UserError(f"There is no column '{column}' in {where}; name one of these with --column: {listed}.")
    return there.index(column)


def text_of(value: object, column: str, where: str) -> str:
    """The text of a value; a missing one (null) is an empty document.

    Raises:
        UserError: it is something else than text.
    """
    if not isinstance(value, str | None):
        raise UserError(
            f"The column '{column}' of {where} holds {type(value).__name__}, not text; name another with --column."
        )
    return value or ""


def _kind(name: str) -> tuple[str, str | None] | None:
    """Format and compression that a file name ends in."""
    for ending, compression in COMPRESSIONS.items():
        for suffix in _READERS:
            if name.lower().endswith(suffix + ending) and not (suffix == ".parquet" and ending):
                return suffix, compression
    return None


def _open(path: Path, compression: str | None) -> io.BufferedReader:
    # pyarrow's streams, because they alone notice where a .zst was cut off.
    return io.BufferedReader(pa.input_stream(str(path), compression=compression), _LINE_BYTES)


def _lines(file: io.BufferedReader, path: Path) -> Iterator[bytes]:
    for number in count(1):
        line = file.readline(_MOST_LINE_BYTES + 1)
        if len(line) > _MOST_LINE_BYTES:
            raise UserError(f"Line {number} of {path} is longer than 64 MiB; cut its text into several documents.")
        if not line:
            return
        yield line


def _decoded(chunks: Iterable[bytes], path: Path) -> Iterator[tuple[int, str]]:
    """Each chunk as text, with the number of the line it starts in."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    line = 1
    for chunk, final in chain(((chunk, False) for chunk in chunks), [(b"", True)]):
        try:
            text = decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            broken = line + error.object[: error.start].count(b"\n")
            raise UserError(f"Line {broken} of {path} is not UTF-8; convert the file to UTF-8.") from error
        if text:
            yield line, text
        line += chunk.count(b"\n")


def _plain(path: Path, compression: str | None, _column: str) -> Iterator[str]:
    with _open(path, compression) as file:
        chunks = iter(lambda: file.read(PLAIN_BYTES) + file.readline(_LINE_BYTES), b"")
        for _, text in _decoded(chunks, path):
            yield text.replace("\r\n", "\n")


def _jsonl(path: Path, compression: str | None, column: str) -> Iterator[str]:
    with _open(path, compression) as file:
        for number, line in _decoded(_lines(file, path), path):
            if line.strip():
                yield _jsonl_document(line, column, f"line {number} of {path}")


def _jsonl_document(line: str, column: str, where: str) -> str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"In {where} stands no JSON ({one_line(error)}); mend the line or remove it.") from error
    if not isinstance(row, dict):
        raise UserError(f"In {where} stands no JSON object; write one with the field '{column}' a line.")
    place_of(column, row, where)
    text = text_of(row[column], column, where)
    # JSON can escape half of a pair of surrogates, which no tokenizer takes.
    return _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text) if "\\u" in line else text


def _csv(path: Path, compression: str | None, column: str) -> Iterator[str]:
    # Long documents are usual here, and a quote that never closes must still not swallow the file. The csv module keeps
    # one limit for everybody.
    csv.field_size_limit(_MOST_FIELD_CHARACTERS)
    with _open(path, compression) as file:
        rows = csv.reader((line for _, line in _decoded(_lines(file, path), path)), strict=True)
        try:
            header = next((row for row in rows if row), [])
            place = place_of(column, header, str(path)) if header else 0
            for row in rows:
                if place < len(row):
                    yield row[place]
        except csv.Error as error:
            raise UserError(
                f"In line {rows.line_num} of {path} stands no CSV ({one_line(error)}); "
                "look for a quote that is not closed or not doubled."
            ) from error


def _parquet(path: Path, _compression: str | None, column: str) -> Iterator[str]:
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=PLAIN_BYTES) as file:
        place_of(column, file.schema_arrow.names, str(path))
        try:
            for batch in file.iter_batches(_PARQUET_ROWS, columns=[column]):
                for value in batch.column(0).to_pylist():
                    yield text_of(value, column, str(path))
        except UnicodeDecodeError as error:
            raise UserError(f"The column '{column}' of {path} is not UTF-8; write it again as UTF-8.") from error


_READERS: dict[str, Callable[[Path, str | None, str], Iterator[str]]] = {
    ".txt": _plain,
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
}
