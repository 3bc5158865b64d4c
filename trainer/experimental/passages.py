"""Passages on which a language model shall be uncertain: files of them, token ids, variations, overlaps with a text.

Shapes: S texts or sequences, T tokens of the longest, L tokens of a sequence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from torch import Tensor

from mxd.trainer.data.readers import file_errors
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids, start_token_id

MAX_PASSAGES = 5000
BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
SKIPPED_PART = 3
"""The variation ``later beginning`` skips one of this many parts of a passage's words."""
OVERLAP_TOKENS = 8
"""Number of consecutive tokens that a sequence shares with a passage if it overlaps."""

NotBlank = Annotated[str, Field(pattern=r"\S")]


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Passage:
    """A text on which predictions should become uncertain, and paraphrases of it."""

    text: NotBlank
    paraphrases: tuple[NotBlank, ...] = ()


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
    try:
        with file_errors(path), path.open(encoding="utf-8", newline="") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8.") from error
    passages = []
    if path.suffix == ".txt":
        passages = [Passage(part.strip()) for part in BLANK_LINES.split(text) if part.strip()]
    for number, line in enumerate(text.split("\n") if path.suffix == ".jsonl" else (), start=1):
        try:
            passages += [TypeAdapter(Passage).validate_json(line)] if line.strip() else []
        except ValidationError as error:
            raise UserError(
                f'Line {number} of {path} is not a passage. Write {{"text": "…"}}, optionally with "paraphrases": '
                '["…"].'
            ) from error
    unique = list(dict.fromkeys(passages))
    if not unique:
        raise UserError(f"{path} holds no passages.")
    if len(unique) > MAX_PASSAGES:
        raise UserError(f"{path} holds {len(unique):,} passages. At most {MAX_PASSAGES:,} can be protected together.")
    return unique


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
    words = [passage.text.split(" ") for passage in passages]
    shortened = [" ".join(part[max(1, len(part) // SKIPPED_PART) :]) for part in words]
    automatic = {
        "later beginning": [text for text in shortened if text],
        "swapped case": [text for passage in passages if (text := passage.text.swapcase()) != passage.text],
    }
    return {kind: texts for kind, texts in ({"given": given} | automatic).items() if texts}


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


def score_all(ids_SL: Tensor) -> EncodedTexts:
    """Sequences of equal length whose predictions are all scored."""
    is_scored_SL = torch.ones_like(ids_SL, dtype=torch.bool)
    is_scored_SL[:, -1] = False
    return EncodedTexts(ids_SL, is_scored_SL)
