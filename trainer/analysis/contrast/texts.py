"""The two texts of a contrast: documents from files, cut into sequences of token ids."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxd.trainer.analysis.contrast.results import Unit
from mxd.trainer.config import TextConfig
from mxd.trainer.data.documents import documents
from mxd.trainer.data.labelled import labelled_file, read_labelled
from mxd.trainer.data.readers import Document
from mxd.trainer.errors import UserError
from mxd.trainer.utils.suggestions import suggest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MIN_DOCUMENTS = 10
"""Documents per text below which sequences are the unit."""
MIN_UNITS = 2


@dataclass(frozen=True)
class NamedText:
    """Documents of a text, and its name in tables."""

    name: str
    documents: Iterable[Document]


def text_of_file(config: TextConfig, seed: int) -> NamedText:
    """Documents of a file, a folder or a Hub dataset, in random order.

    Raises:
        NotFoundError, UserError: as ``documents``.
    """
    return NamedText(config.dataset, documents(config, "shuffled", seed))


def text_of_kind(config: TextConfig, kind: str, kind_column: str, seed: int) -> NamedText:
    """Documents of one kind from a file of labelled texts, in random order.

    Raises:
        NotFoundError: there is no such file.
        UserError: the file lacks a column, or has no text of this kind.
    """
    labelled = list(read_labelled(labelled_file(config.dataset), config.column, kind_column))
    texts = [each.text for each in labelled if each.label == kind]
    if not texts:
        kinds = sorted({each.label for each in labelled})
        raise UserError(
            f"No text of kind '{kind}' in {config.dataset}.{suggest(kind, kinds)} Its kinds: {_listed(kinds)}."
        )
    return NamedText(kind, shuffled(texts, seed))


def shuffled(texts: Sequence[str], seed: int) -> list[str]:
    """Return the texts in random order."""
    return random.Random(seed).sample(texts, len(texts))


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join(kinds[:30]) + (", …" if len(kinds) > 30 else "")


@dataclass(frozen=True)
class TokenizedText:
    """Sequences of a text. Each begins with the start token, which is not counted."""

    name: str
    documents: int
    sequences: tuple[list[int], ...]
    document_of: tuple[int, ...]
    """Index of the document of each sequence."""

    def units(self, unit: Unit) -> list[int]:
        """Index of the unit of each sequence."""
        return list(self.document_of) if unit == "document" else list(range(len(self.sequences)))

    @property
    def tokens(self) -> int:
        """Number of tokens without start tokens."""
        return sum(map(len, self.sequences)) - len(self.sequences)


def tokenize_text(
    text: NamedText, tokenizer: PreTrainedTokenizerBase, start_token: int, tokens: int, context_length: int
) -> TokenizedText:
    """Read documents until they have ``tokens`` tokens, and cut them into sequences of at most ``context_length``.

    The last document is cut where the tokens end. Every sequence begins with the start token, because the first token
    of a sequence has unusual activations.

    Raises:
        UserError: as the documents raise during iteration, or they are all empty.
    """
    sequences: list[list[int]] = []
    document_of: list[int] = []
    number, left = 0, tokens
    for document in text.documents:
        ids = _token_ids(document, tokenizer)[:left]
        if not ids:
            continue
        parts = [[start_token, *part] for part in _cut(ids, context_length - 1)]
        sequences += parts
        document_of += [number] * len(parts)
        number, left = number + 1, left - len(ids)
        if not left:
            break
    if not sequences:
        raise UserError(f"Text {text.name} is empty. Give a text with at least one word.")
    return TokenizedText(text.name, number, tuple(sequences), tuple(document_of))


def _token_ids(document: Document, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    if not isinstance(document, str):
        return list(document)
    ids: list[int] = tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _cut(ids: Sequence[int], length: int) -> Iterator[Sequence[int]]:
    return (ids[first : first + length] for first in range(0, len(ids), length))


def choose_unit(texts: Sequence[TokenizedText]) -> Unit:
    """Return the unit that is counted as independent.

    Raises:
        UserError: a text is too short for two units.
    """
    if all(text.documents >= MIN_DOCUMENTS for text in texts):
        return "document"
    for text in texts:
        if len(text.sequences) < MIN_UNITS:
            raise UserError(
                f"Text {text.name} is too short: {text.tokens} tokens in one sequence. Give several documents, "
                f"{MIN_DOCUMENTS} or more if possible."
            )
    return "sequence"
