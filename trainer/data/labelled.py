"""Texts with a label each, such as their kind, language or topic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mxd.trainer.data.readers import is_supported, label_of, only_texts, read_documents
from mxd.trainer.errors import NotFoundError, UserError


@dataclass(frozen=True)
class LabelledText:
    """A text and its class."""

    label: str
    text: str


def labelled_file(name: str) -> Path:
    """Return the path of a file of labelled texts.

    Raises:
        NotFoundError: there is no such file.
        UserError: its format has no columns.
    """
    path = Path(os.path.expanduser(name))
    if not path.is_file():
        raise NotFoundError(f"No such file: {name}. Give a .jsonl or .csv file of labelled texts.")
    if not is_supported(path.name) or ".txt" in path.suffixes:
        raise UserError(f"Unsupported file: {path}. Give a .jsonl or .csv file (also .gz or .zst), or a .parquet file.")
    return path


def read_labelled(path: Path, text_column: str, label_column: str) -> Iterator[LabelledText]:
    """Yield the texts that have a label and are not blank, in the order of the file. Labels may be numbers.

    Raises:
        UserError: during iteration, if the file is damaged or lacks a column.
    """
    texts = only_texts(read_documents(path, text_column), f"Column '{text_column}' of {path}")
    labels = map(str, read_documents(path, label_column, label_of))
    pairs = zip(labels, texts, strict=True)
    return (LabelledText(label, text) for label, text in pairs if label and text.strip())
