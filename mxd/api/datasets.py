"""Datasets in memory: texts, rows of a Hugging Face dataset, or token ids, saved in the data folder on first use.

Training can then resume, and the dashboard and later evaluations can tell which text a run was trained on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from mxd.trainer.config.base import Count
from mxd.trainer.config.training import TextConfig
from mxd.trainer.data.readers import MAX_TOKEN_ID, Document, is_supported, label_of
from mxd.trainer.data.sequences import tokenize_documents
from mxd.trainer.errors import UserError
from mxd.trainer.utils.files import atomic_directory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Dataset = str | Path | TextConfig | Iterable[Any]
"""A file, a folder or a Hub dataset by name; a ``TextConfig``; or an iterable of texts, of rows with a column ``text``
or ``input_ids`` (such as a ``datasets.Dataset``), or of token ids as lists, arrays or tensors."""

FOLDER = "texts"
COLUMNS = ("text", "input_ids")
_ROWS = 256
_LONGEST_PATH = 1024
_COUNT = TypeAdapter[int](Count)


class Source(NamedTuple):
    """A dataset on disk."""

    text: TextConfig
    tokens: int
    """Number of tokens to read."""


def open_dataset(
    dataset: Dataset,
    tokens: int | str | None,
    data: Path,
    tokenizer: PreTrainedTokenizerBase,
    keywords: Mapping[str, Any],
) -> Source:
    """Return the settings of a dataset; one in memory is saved below ``data``, up to ``tokens`` tokens. ``keywords``
    are fields of ``TextConfig``."""
    limit = None if tokens is None else number_of_tokens(tokens)
    if isinstance(dataset, TextConfig):
        text = dataset
    elif isinstance(dataset, str | Path):
        text = TextConfig.from_keywords({"dataset": str(dataset)}, keywords)
    else:
        column, rows = _limited(text_documents(dataset, keywords.get("column")), limit, tokenizer)
        path = _save(rows, column, data / FOLDER)
        text = TextConfig.from_keywords({}, {**keywords, "dataset": str(path), "column": column})
    if limit is None:
        available = sum(len(ids) for ids in tokenize_documents(text, tokenizer))
        limit = max(available // text.context_length, 1) * text.context_length
    return Source(text, limit)


def number_of_tokens(tokens: int | str) -> int:
    """Parse a number of tokens, such as 20_000_000 or ``"20M"``. Raises UserError if it is not a positive number."""
    try:
        return _COUNT.validate_python(tokens)
    except ValidationError as error:
        raise UserError(f"Invalid tokens: {tokens!r}. Use a positive number, such as 20_000_000 or '20M'.") from error


def text_documents(dataset: Iterable[Any], column: str | None = None) -> Iterator[Document]:
    """Yield the texts or token ids of a dataset in memory."""
    return _documents(_rows_of(dataset), column)


def _documents(dataset: Iterable[Any], column: str | None) -> Iterator[Document]:
    for item in dataset:
        value = _value(item, column) if isinstance(item, Mapping) else item
        # A path is that of a file, or looks like one in another folder: one word with a supported suffix.
        short = value.strip() if isinstance(value, str) and len(value) < _LONGEST_PATH else ""
        looks_like_file = is_supported(short) and len(short.split()) == 1
        if isinstance(value, os.PathLike) or (short and (looks_like_file or os.path.isfile(value))):
            raise UserError(
                f"An item of the dataset is the path of a file: '{value}'. Pass a path alone, as a file or a folder of "
                "files, or the texts in the files."
            )
        if isinstance(value, str):
            yield value
        else:
            yield from _token_ids(value)


def _value(row: Mapping[str, Any], column: str | None) -> Any:
    names = (column,) if column else COLUMNS
    found = next((name for name in names if name in row), None)
    if found is None:
        listed = ", ".join(f"'{name}'" for name in row)
        raise UserError(f"A row of the dataset has no column {' or '.join(map(repr, names))}. It has: {listed}.")
    return row[found]


def _token_ids(value: Any) -> Iterator[list[int]]:
    """Rows of token ids of a list, an array or a tensor [T] or [B, T]."""
    try:
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    except ValueError:
        array = np.asarray(None)  # rows of different lengths
    if (
        array.dtype.kind not in "iu"
        or array.ndim not in (1, 2)
        or (array.size and not 0 <= array.min() <= array.max() <= MAX_TOKEN_ID)
    ):
        raise UserError(
            f"An item of the dataset is neither text nor token ids: {value!r:.80}. Use texts, rows with a column "
            "'text' or 'input_ids', or token ids [T] or [B, T]."
        )
    yield from np.atleast_2d(array).tolist()


def _limited(
    documents: Iterator[Document], limit: int | None, tokenizer: PreTrainedTokenizerBase
) -> tuple[str, list[Document]]:
    """Column name and documents, of one kind, until they have ``limit`` tokens."""
    first = next(documents, None)
    if first is None:
        raise UserError("The dataset is empty. Pass an iterable of texts or of token ids; an iterator is used up once.")
    kind, available, rows = type(first), 0, list[Document]()
    stream = chain([first], documents)
    while (limit is None or available < limit) and (part := list(islice(stream, _ROWS))):
        if any(type(document) is not kind for document in part):
            raise UserError("The dataset mixes texts and token ids. Pass only one kind.")
        rows += part
        if limit is not None:
            texts = [document for document in part if isinstance(document, str)]
            ids = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] if texts else part
            available += sum(map(len, ids)) + len(texts)  # each text follows a start token
    return ("text" if kind is str else "input_ids"), rows


def _save(rows: Sequence[Document], column: str, folder: Path) -> Path:
    """Write documents to a Parquet file named after their digest, unless it exists."""
    digest = blake2b(digest_size=8)
    for row in rows:
        digest.update(row.encode() if isinstance(row, str) else np.asarray(row, np.int32).tobytes())
        digest.update(b"\0")
    target = folder / digest.hexdigest()
    if not target.is_dir():
        kind = pa.string() if column == "text" else pa.list_(pa.int32())
        with atomic_directory(target) as partial:
            pq.write_table(pa.table({column: pa.array(rows, kind)}), partial / f"{column}.parquet")
    return target / f"{column}.parquet"


def _rows_of(dataset: Iterable[Any]) -> Iterable[Any]:
    """The dataset, if it iterates over its rows."""
    # Tables of every library have columns; a datasets.Dataset has column_names, and iterates over its rows.
    keys = dataset if isinstance(dataset, Mapping) else getattr(dataset, "columns", None)
    if keys is None:
        return dataset
    keys = getattr(dataset, "column_names", keys)  # PyArrow's columns are the values
    names = ", ".join(f"dataset[{name!r}]" for name in islice(keys, 20))
    raise UserError(
        f"A {type(dataset).__name__} is not an iterable of texts or token ids. Pass one of its entries: {names}."
    )


def save_labelled(labels: Iterable[Any], data: Path) -> Path:
    """Write labelled texts, as pairs or as rows with ``text`` and ``label``, to a file below ``data``. Returns it."""
    lines = []
    for item in _rows_of(labels):
        pair = (item.get("text"), item.get("label")) if isinstance(item, Mapping) else item
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise UserError(
                f"A labelled text is neither a pair (text, label) nor a row with text and label: {item!r:.80}."
            )
        label = pair[1].item() if isinstance(pair[1], np.generic | Tensor) else pair[1]
        # DataFrames mark missing labels by NaN.
        label = label_of(None if label != label else label, "label", "the labelled texts")
        lines.append(json.dumps({"text": pair[0], "label": label}, ensure_ascii=False) + "\n")
    content = "".join(lines).encode()
    target = data / FOLDER / f"labels-{blake2b(content, digest_size=8).hexdigest()}.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target
