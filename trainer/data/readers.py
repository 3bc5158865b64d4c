"""Readers that turn text files into documents, one per format.

Readers stream: they hold a line, a batch of rows or about a megabyte, never the whole file. Errors name the file and,
for line-based formats, the line.

A large file is also read in pieces, in any order: some lines of an uncompressed .txt or .jsonl file, some rows of a
.parquet file. Compressed and .csv files can be read only from their beginning.

Remote files (hf://, s3://, gs://, https:// and so on) are read by fsspec, without copies on disk.
"""

import codecs
import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate, chain, count, pairwise
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.utils.files import explained, one_line

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII)


class RemoteFile:
    """A remote file, with the members of a path that readers use."""

    def __init__(self, filesystem: Any, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self.name, self.suffix = PurePosixPath(path).name, PurePosixPath(path).suffix

    def __str__(self) -> str:
        return str(self._filesystem.unstrip_protocol(self._path))

    def stat(self) -> SimpleNamespace:
        """Size of the file. Raises UserError if the place cannot be read, or does not state the size."""
        with remote_errors(str(self)):
            size = self._filesystem.size(self._path)
        if size is None:  # of a web server that compresses what it sends
            raise UserError(f"The size of {self} is unknown. Download it and use the local file.")
        return SimpleNamespace(st_size=int(size))

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Open the file for reading from any position. Raises UserError if the place cannot be read."""
        with remote_errors(str(self)):
            file = self._filesystem.open(self._path, mode)
        return cast(io.BufferedReader, file)


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def remote_files(url: str) -> dict[tuple[str, ...], RemoteFile]:
    """Files of a URL by the components of their paths: one file, all in a folder, or those that match a pattern. Hidden
    files are left out, as of a local folder. Raises NotFoundError (there is none) or UserError (the place cannot be
    read, or its package is not installed)."""
    from fsspec.core import url_to_fs

    with remote_errors(url):
        filesystem, path = url_to_fs(url)
        start = re.split(r"[*?\[]", path)[0]
        found = filesystem.find(path) if start == path else filesystem.glob(path)
    inside = len(start if start == path else start.rpartition("/")[0])
    files = {PurePosixPath(one).parts: RemoteFile(filesystem, one) for one in found if "/." not in one[inside:]}
    if not files:
        raise NotFoundError(f"There is no file at {url}. Check the address, or use a local file.")
    return files


def remote_errors(url: str) -> AbstractContextManager[None]:
    advice = "Check the address and your access, or use a local file."
    return explained(f"Cannot read {url}: {{error}}. {advice}", OSError, ValueError, ImportError, RuntimeError)


PLAIN_BYTES = 2**20
"""Size at which a .txt file is split into several documents, at a line end if one is near."""

COMPRESSIONS: dict[str, str | None] = {"": None, ".gz": "gzip", ".zst": "zstd"}
"""Compression by file name suffix, which follows the suffix of the format."""

_LINE_BYTES = 2**16
_MOST_LINE_BYTES = 2**26
_MOST_FIELD_CHARACTERS = 2**26
"""Limits on a line and a CSV field: a small compressed file can expand to a line that exhausts memory."""
_PARQUET_ROWS = 256
_GROUP_PIECES, _PIECE_ROWS = 16, 1024
"""Most pieces of a row group and fewest rows of a piece: a row group is decoded from its beginning for each piece."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


MAX_TOKEN_ID = 2**31 - 1
"""Ids are stored as 32-bit integers."""
Document = str | list[int]
"""Text of a document, or its token ids if the column holds them."""
TextFile = Path | RemoteFile
Convert = Callable[[object, str, str], Document]


def is_supported(name: str) -> bool:
    return _format_and_compression(name) is not None


def read_documents(path: TextFile, column: str, convert: Convert | None = None) -> Iterator[Document]:
    """Yield the documents of a file, including empty ones: rows of ``column``, or the text of a .txt file. A column of
    a .jsonl or .parquet file may hold lists of token ids instead of text. ``convert`` makes a document of a value, its
    column and its place. Raises UserError during iteration if the file is damaged or has no such column."""
    format_and_compression = _format_and_compression(path.name)
    assert format_and_compression is not None
    suffix, compression = format_and_compression
    with file_errors(path):
        yield from _READERS[suffix](path, compression, column, convert or document_of)


def only_texts(documents: Iterable[Document], source: str) -> Iterator[str]:
    """Yield documents that must be texts. Errors name their ``source``. Raises UserError during iteration, if a
    document is a list of token ids."""
    for document in documents:
        if not isinstance(document, str):
            raise UserError(f"{source} holds token ids, but texts are needed. Choose another column.")
        yield document


def file_errors(path: TextFile) -> AbstractContextManager[None]:
    """Turn I/O and format errors into a UserError about ``path``."""
    return explained(f"Cannot read {path}: {{error}}. Download or copy the file again.", OSError, pa.ArrowException)


def column_index(column: str, names: Iterable[str], where: str) -> int:
    """Index of ``column`` in ``names``. Raises UserError if there is no such column."""
    columns = list(names)
    if column not in columns:
        listed = ", ".join(f"'{name}'" for name in columns[:20]) or "none"
        raise UserError(f"No column '{column}' in {where}. Choose one of these: {listed}.")
    return columns.index(column)


def document_of(value: object, column: str, where: str) -> Document:
    """Text or token ids of a value; null is an empty document. Raises UserError if the value is neither text nor a list
    of token ids."""
    if isinstance(value, list) and all(type(item) is int and 0 <= item <= MAX_TOKEN_ID for item in value):
        return value
    if not isinstance(value, str | None):
        raise UserError(
            f"Column '{column}' of {where} holds {type(value).__name__}, not text or lists of token ids. "
            "Choose another column."
        )
    return value or ""


def label_of(value: object, column: str, where: str) -> str:
    """Text of a label: text, a number or a Boolean, written as in JSON; null is an empty label. A whole number is
    written without a decimal point, because files with missing labels hold it as 1.0. Raises UserError if the value is
    none of these."""
    if isinstance(value, str | None):
        return value or ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise UserError(
        f"Column '{column}' of {where} holds {type(value).__name__}, not labels (text, numbers or Booleans). Choose "
        "another column."
    )


def _format_and_compression(name: str) -> tuple[str, str | None] | None:
    for ending, compression in COMPRESSIONS.items():
        for suffix in _READERS:
            if name.lower().endswith(suffix + ending) and not (suffix == ".parquet" and ending):
                return suffix, compression
    return None


def _open(path: TextFile, compression: str | None) -> io.BufferedReader:
    # pyarrow's streams detect truncated .zst files.
    return io.BufferedReader(pa.input_stream(_source(path), compression=compression), _LINE_BYTES)


def _source(path: TextFile) -> str | io.BufferedReader:
    return str(path) if isinstance(path, Path) else path.open("rb")


def _lines(file: io.BufferedReader, source: str) -> Iterator[bytes]:
    for number in count(1):
        line = file.readline(_MOST_LINE_BYTES + 1)
        if len(line) > _MOST_LINE_BYTES:
            raise UserError(f"Line {number} of {source} is longer than 64 MiB. Split its text into several documents.")
        if not line:
            return
        yield line


def _decoded(chunks: Iterable[bytes], source: str) -> Iterator[tuple[int, str]]:
    """Yield each chunk as text, with the number of the line it starts in."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    line = 1
    for chunk, final in chain(((chunk, False) for chunk in chunks), [(b"", True)]):
        try:
            text = decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            bad_line = line + error.object[: error.start].count(b"\n")
            raise UserError(f"Line {bad_line} of {source} is not UTF-8. Convert the file to UTF-8.") from error
        if text:
            yield line, text
        line += chunk.count(b"\n")


def _plain(path: TextFile, compression: str | None, _column: str, _convert: Convert) -> Iterator[str]:
    with _open(path, compression) as file:
        chunks = iter(lambda: file.read(PLAIN_BYTES) + file.readline(_LINE_BYTES), b"")
        for _, text in _decoded(chunks, str(path)):
            yield text.replace("\r\n", "\n")


def _jsonl(path: TextFile, compression: str | None, column: str, convert: Convert) -> Iterator[Document]:
    with _open(path, compression) as file:
        yield from _jsonl_documents(_lines(file, str(path)), column, str(path), convert)


def _jsonl_documents(lines: Iterable[bytes], column: str, source: str, convert: Convert) -> Iterator[Document]:
    for number, line in _decoded(lines, source):
        if not line.strip():
            continue
        where = f"line {number} of {source}"
        with explained(f"Invalid JSON in {where}: {{error}}. Fix or remove the line.", ValueError, RecursionError):
            row = json.loads(line)
        if not isinstance(row, dict):
            raise UserError(f"Not a JSON object: {where}. Each line needs an object with the field '{column}'.")
        column_index(column, row, where)
        document = convert(row[column], column, where)
        # JSON can escape a lone surrogate, which tokenizers reject.
        if isinstance(document, str) and "\\u" in line:
            document = _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", document)
        yield document


def _csv(path: TextFile, compression: str | None, column: str, _convert: Convert) -> Iterator[str]:
    # Allow long documents, but stop at an unclosed quote. The limit is global to the csv module.
    csv.field_size_limit(_MOST_FIELD_CHARACTERS)
    with _open(path, compression) as file:
        rows = csv.reader((line for _, line in _decoded(_lines(file, str(path)), str(path))), strict=True)
        try:
            header = next((row for row in rows if row), [])
            index = column_index(column, header, str(path)) if header else 0
            for row in rows:
                if index < len(row):
                    yield row[index]
        except csv.Error as error:
            raise UserError(
                f"Invalid CSV in line {rows.line_num} of {path}: {one_line(error)}. "
                "Look for a quote that is not closed or not doubled."
            ) from error


def _parquet(path: TextFile, _compression: str | None, column: str, convert: Convert) -> Iterator[Document]:
    with _open_parquet(path) as file:
        yield from _parquet_rows(file, path, column, range(file.metadata.num_rows), convert)


def _open_parquet(path: TextFile) -> pq.ParquetFile:
    return pq.ParquetFile(_source(path), pre_buffer=False, buffer_size=PLAIN_BYTES)


def _row_groups(file: pq.ParquetFile) -> list[range]:
    sizes = (file.metadata.row_group(index).num_rows for index in range(file.num_row_groups))
    return [range(start, stop) for start, stop in pairwise(accumulate(sizes, initial=0))]


def _parquet_rows(
    file: pq.ParquetFile, path: TextFile, column: str, rows: range, convert: Convert
) -> Iterator[Document]:
    column_index(column, file.schema_arrow.names, str(path))
    groups = [
        (index, group)
        for index, group in enumerate(_row_groups(file))
        if group.start < rows.stop and rows.start < group.stop
    ]
    position = groups[0][1].start if groups else 0
    with explained(f"Column '{column}' of {path} is not UTF-8. Write the file again as UTF-8.", UnicodeDecodeError):
        for batch in file.iter_batches(_PARQUET_ROWS, row_groups=[index for index, _ in groups], columns=[column]):
            wanted = batch.column(0)[max(rows.start - position, 0) : max(rows.stop - position, 0)]
            position += len(batch)
            for value in wanted.to_pylist():
                yield convert(value, column, str(path))
            if position >= rows.stop:
                return


_READERS: dict[str, Callable[[TextFile, str | None, str, Convert], Iterator[Document]]] = {
    ".txt": _plain,
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
}


# ---------------------------------------------------------------- pieces of files


class Piece(NamedTuple):
    """Part of a file that is read on its own.

    Every document that ``read_documents`` yields is in one of a file's pieces. A piece of a .txt file is a document.
    """

    path: TextFile
    start: int
    """First byte of a .txt or .jsonl file, first row of a .parquet file. Lines are in the piece in which they start."""
    stop: int | None
    """Byte or row after the last one; None for a file that is read from its beginning to its end."""


def can_be_divided(path: TextFile) -> bool:
    """True if a part of a file can be read without all before it. In a .csv file, quotes may hold line ends."""
    return path.suffix.lower() in (".txt", ".jsonl", ".parquet")


def pieces(path: TextFile, piece_bytes: int) -> list[Piece]:
    """Divide a file into pieces of about ``piece_bytes``, at least one. Parquet files have pieces of at least 1,024
    rows. Raises UserError if the file is damaged."""
    with file_errors(path):
        size = path.stat().st_size
        if size <= piece_bytes or not can_be_divided(path):
            return [Piece(path, 0, None)]
        if path.suffix.lower() == ".parquet":
            with _open_parquet(path) as file:
                sizes = [(group, max(_PIECE_ROWS, -(-len(group) // _GROUP_PIECES))) for group in _row_groups(file)]
                parts = [group[start : start + rows] for group, rows in sizes for start in range(0, len(group), rows)]
                return [Piece(path, part.start, part.stop) for part in parts]
        return [Piece(path, start, min(start + piece_bytes, size)) for start in range(0, size, piece_bytes)]


def read_piece(piece: Piece, column: str) -> Iterator[Document]:
    """Yield the documents of a piece, including empty ones. Raises UserError during iteration, if the file is damaged
    or has no such column."""
    path, start, stop = piece
    if stop is None:
        yield from read_documents(path, column)
        return
    source = f"{path}, counted from byte {start:,}" if start else str(path)
    with file_errors(path):
        if path.suffix.lower() == ".parquet":
            with _open_parquet(path) as parquet:
                yield from _parquet_rows(parquet, path, column, range(start, stop), document_of)
            return
        with path.open("rb") as file:
            if path.suffix.lower() == ".txt":
                first, last = _text_boundary(file, start), _text_boundary(file, stop)
                file.seek(first)
                yield "".join(text for _, text in _decoded([file.read(last - first)], source)).replace("\r\n", "\n")
            else:
                yield from _jsonl_documents(_lines_from(file, start, stop, source), column, source, document_of)


def _text_boundary(file: io.BufferedReader, offset: int) -> int:
    """First position from ``offset`` where a line starts; if none is near, where a character starts."""
    if offset == 0:
        return 0
    file.seek(offset)
    near = file.read(_LINE_BYTES)
    newline = near.find(b"\n")
    if newline >= 0:
        return offset + newline + 1
    return offset + next((index for index, byte in enumerate(near) if byte & 0xC0 != 0x80), len(near))


def _lines_from(file: io.BufferedReader, start: int, stop: int, source: str) -> Iterator[bytes]:
    if start:
        # From the byte before, which ends the previous line if one starts here.
        file.seek(start - 1)
        if not file.readline(stop - start + 1).endswith(b"\n"):
            return
    lines = _lines(file, source)
    while file.tell() < stop and (line := next(lines, b"")):
        yield line


# ---------------------------------------------------------------- labelled texts


@dataclass(frozen=True)
class LabelledText:
    label: str
    text: str


def labelled_file(name: str) -> Path:
    """Return the path of a file of labelled texts. Raises NotFoundError (there is no such file) or UserError (its
    format has no columns)."""
    path = Path(os.path.expanduser(name))
    if not path.is_file():
        raise NotFoundError(f"No such file: {name}. Give a .jsonl or .csv file of labelled texts.")
    if not is_supported(path.name) or ".txt" in path.suffixes:
        raise UserError(f"Unsupported file: {path}. Give a .jsonl or .csv file (also .gz or .zst), or a .parquet file.")
    return path


def read_labelled(path: Path, text_column: str, label_column: str) -> Iterator[LabelledText]:
    """Yield the texts that have a label and are not blank, in the order of the file. Labels may be numbers. Raises
    UserError during iteration, if the file is damaged or lacks a column."""
    texts = only_texts(read_documents(path, text_column), f"Column '{text_column}' of {path}")
    labels = map(str, read_documents(path, label_column, label_of))
    pairs = zip(labels, texts, strict=True)
    return (LabelledText(label, text) for label, text in pairs if label and text.strip())
