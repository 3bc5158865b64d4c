"""Passages to protect: read from a file, tokenised, and varied.

Shapes: S passages, T tokens of the longest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mxd.trainer.data.readers import file_errors
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import prompt_ids
from mxd.trainer.language_model.tokenizer import start_token_id

MAX_PASSAGES = 5000
BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
SKIPPED_PART = 3
"""The variation ``later beginning`` skips one of this many parts of a passage's words."""
OVERLAP_TOKENS = 8
"""Number of consecutive tokens that a sequence shares with a passage if it overlaps."""


@dataclass(frozen=True)
class Passage:
    """A text on which predictions should become uncertain, and paraphrases of it."""

    text: str
    paraphrases: tuple[str, ...] = ()


@dataclass(frozen=True)
class EncodedTexts:
    """Token ids of texts, with a start token, padded to equal length."""

    ids_ST: Tensor
    """Token ids, padded with the start token on the right, where attention does not see it."""
    is_scored_ST: Tensor
    """Mask of positions whose next-token prediction is scored."""

    def __len__(self) -> int:
        return len(self.ids_ST)

    @property
    def predictions(self) -> int:
        """Number of scored predictions."""
        return int(self.is_scored_ST.sum())

    def select(self, rows: slice) -> EncodedTexts:
        """A slice of the texts."""
        return EncodedTexts(self.ids_ST[rows], self.is_scored_ST[rows])


def read_passages(path: Path) -> list[Passage]:
    """Read passages: paragraphs of a .txt file, or a .jsonl file of objects with ``text`` and optional ``paraphrases``.

    Raises:
        NotFoundError: there is no such file.
        UserError: the file is of another kind, damaged or empty, or has too many passages.
    """
    path = path.expanduser()
    if not path.is_file():
        raise NotFoundError(f"There is no file {path}. Give --passages a .txt or .jsonl file.")
    if path.suffix not in (".txt", ".jsonl"):
        raise UserError(
            f"{path} is neither .txt nor .jsonl. Give a .txt file with blank lines between passages, or a .jsonl file."
        )
    with file_errors(path):
        content = path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8.") from error
    return check_passages(_paragraphs(text) if path.suffix == ".txt" else _objects(path, text), str(path))


def check_passages(passages: Sequence[Passage], where: str) -> list[Passage]:
    """Remove duplicates and check the number of passages.

    Raises:
        UserError: there are no passages, or too many.
    """
    unique = list(dict.fromkeys(passages))
    if not unique:
        raise UserError(f"{where} holds no passages.")
    if len(unique) > MAX_PASSAGES:
        raise UserError(f"{where} holds {len(unique):,} passages. At most {MAX_PASSAGES:,} can be protected together.")
    return unique


def _paragraphs(text: str) -> list[Passage]:
    return [Passage(part.strip()) for part in BLANK_LINES.split(text) if part.strip()]


def _objects(path: Path, text: str) -> list[Passage]:
    lines = ((number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip())
    return [_passage(line, f"Line {number} of {path}") for number, line in lines]


def _passage(line: str, where: str) -> Passage:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    paraphrases = value.get("paraphrases", []) if isinstance(value, dict) else None
    is_valid = isinstance(paraphrases, list) and all(isinstance(one, str) and one.strip() for one in paraphrases)
    text = value.get("text") if isinstance(value, dict) else None
    if not (isinstance(text, str) and text.strip() and is_valid and value.keys() <= {"text", "paraphrases"}):
        raise UserError(f'{where} is not a passage. Write {{"text": "…"}}, optionally with "paraphrases": ["…"].')
    return Passage(text, tuple(paraphrases or ()))


def encode(
    language_model: LanguageModel, texts: Sequence[str], skip_tokens: int, start_token: str | None = None
) -> EncodedTexts:
    """Tokenise texts. All predictions count except the first ``skip_tokens`` and the one after the last token.

    ``start_token`` is the one of the runs; by default, that of the language model.

    Raises:
        TooLongError: a text exceeds the context length.
        UserError: a text is too short to have scored predictions.
    """
    rows = [prompt_ids(language_model, text, start_token=start_token) for text in texts]
    for row, text in zip(rows, texts, strict=True):
        if len(row) < skip_tokens + 2:
            raise UserError(
                f"The passage {text[:40]!r} has {len(row) - 1} tokens, of which the first {skip_tokens} are not "
                "protected. Make it longer, or lower --skip-tokens."
            )
    longest, padding = max(map(len, rows)), start_token_id(language_model.tokenizer)
    ids_ST = torch.tensor([row + [padding] * (longest - len(row)) for row in rows])
    position_T, lengths_S = torch.arange(longest), torch.tensor([len(row) for row in rows])
    return EncodedTexts(ids_ST, (position_T >= skip_tokens) & (position_T < lengths_S.unsqueeze(1) - 1))


def variations_of(passages: Sequence[Passage]) -> dict[str, list[str]]:
    """Variations of the passages by kind: the given paraphrases and two automatic ones.

    ``later beginning`` drops the first third of the words. ``swapped case`` swaps the case of every letter.
    """
    given = [text for passage in passages for text in passage.paraphrases]
    shortened = [_without_beginning(passage.text) for passage in passages]
    automatic = {
        "later beginning": [text for text in shortened if text],
        "swapped case": [text for passage in passages if (text := passage.text.swapcase()) != passage.text],
    }
    return {kind: texts for kind, texts in ({"given": given} | automatic).items() if texts}


def _without_beginning(text: str) -> str:
    words = text.split(" ")
    return " ".join(words[max(1, len(words) // SKIPPED_PART) :])


def drop_overlapping(ids_SL: Tensor, passages: EncodedTexts) -> Tensor:
    """Drop the sequences that share tokens with a passage, because the two losses would conflict on them."""
    lengths = passages.is_scored_ST.long() * torch.arange(1, passages.ids_ST.shape[1] + 1)
    protected = {
        tuple(row[start : start + OVERLAP_TOKENS])
        for row, last in zip(passages.ids_ST.tolist(), lengths.amax(1).tolist(), strict=True)
        for start in range(1, last + 2 - OVERLAP_TOKENS)
    }
    disjoint = [
        index
        for index, row in enumerate(ids_SL.tolist())
        if not any(
            tuple(row[start : start + OVERLAP_TOKENS]) in protected for start in range(len(row) - OVERLAP_TOKENS + 1)
        )
    ]
    return ids_SL[disjoint]
