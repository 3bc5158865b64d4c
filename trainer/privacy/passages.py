"""The passages that are protected: from a file, as tokens, and said in other words.

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

from trainer.errors import NotFoundError, UserError
from trainer.language_model import LanguageModel
from trainer.readers import reading
from trainer.routing import prompt_ids
from trainer.tokens import separator_id

MOST_PASSAGES = 5000
BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
LATER = 3
"""A passage begins later by this part of its words."""
RUN_OF_TOKENS = 8
"""Other text that has so many tokens in a row in common with a passage is taken to hold it."""


@dataclass(frozen=True)
class Passage:
    """A text on which the language model shall be unsure, and the same said otherwise."""

    text: str
    paraphrases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Encoded:
    """Texts as rows of token ids behind the start token."""

    ids_ST: Tensor
    """Filled up with the separator, which no earlier token sees."""
    is_meant_ST: Tensor
    """Behind which tokens the prediction counts: there is a next one, and enough before."""

    def __len__(self) -> int:
        return len(self.ids_ST)

    @property
    def predictions(self) -> int:
        """How many count."""
        return int(self.is_meant_ST.sum())

    def some(self, places: slice) -> Encoded:
        """Some of the texts."""
        return Encoded(self.ids_ST[places], self.is_meant_ST[places])


def read_passages(path: Path) -> list[Passage]:
    """Passages of a .txt file, a paragraph each, or of a .jsonl file, an object with ``text`` and, where there are any,
    ``paraphrases`` a line.

    Raises:
        NotFoundError: there is no such file.
        UserError: it is of another kind, damaged, empty or holds too many.
    """
    path = path.expanduser()
    if not path.is_file():
        raise NotFoundError(f"There is no file {path}; give --passages with a .txt or .jsonl file.")
    if path.suffix not in (".txt", ".jsonl"):
        raise UserError(
            f"{path} is neither .txt nor .jsonl; give a .txt file with a blank line between passages, or a .jsonl file."
        )
    with reading(path):
        content = path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8.") from error
    return checked(_paragraphs(text) if path.suffix == ".txt" else _objects(path, text), str(path))


def checked(passages: Sequence[Passage], where: str) -> list[Passage]:
    """The passages, once it is seen that there are some and none is there twice.

    Raises:
        UserError: there are none, or too many.
    """
    found = list(dict.fromkeys(passages))
    if not found:
        raise UserError(f"{where} holds no passages; write at least one.")
    if len(found) > MOST_PASSAGES:
        raise UserError(f"{where} holds {len(found):,} passages; at most {MOST_PASSAGES:,} can be protected together.")
    return found


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
    listed = isinstance(paraphrases, list) and all(isinstance(one, str) and one.strip() for one in paraphrases)
    text = value.get("text") if isinstance(value, dict) else None
    if not (isinstance(text, str) and text.strip() and listed and value.keys() <= {"text", "paraphrases"}):
        raise UserError(f'{where} is no passage; write {{"text": "…"}}, with "paraphrases": ["…"] where there are any.')
    return Passage(text, tuple(paraphrases or ()))


def encode(language_model: LanguageModel, texts: Sequence[str], after: int) -> Encoded:
    """Texts as tokens; the prediction counts behind each token but the last, from the one with ``after`` before it on.

    Raises:
        TooLongError: one is longer than the language model takes.
        UserError: one is too short for any prediction to count.
    """
    rows = [prompt_ids(language_model, text) for text in texts]
    for row, text in zip(rows, texts, strict=True):
        if len(row) < after + 2:
            raise UserError(
                f"The passage {text[:40]!r} has {len(row) - 1} tokens, and predictions are protected behind {after} "
                "and more; make it longer, or ask for fewer with --after."
            )
    longest, separator = max(map(len, rows)), separator_id(language_model.tokenizer)
    ids_ST = torch.tensor([row + [separator] * (longest - len(row)) for row in rows])
    place_T, lengths_S = torch.arange(longest), torch.tensor([len(row) for row in rows])
    return Encoded(ids_ST, (place_T >= after) & (place_T < lengths_S.unsqueeze(1) - 1))


def said_otherwise(passages: Sequence[Passage]) -> dict[str, list[str]]:
    """By kind, the passages in other words: those that were given, and two that are made without knowing what is meant.

    ``later beginning`` is the passage without the first third of its words; ``swapped case`` has every letter in the
    other case. Neither is a paraphrase by meaning.
    """
    given = [text for passage in passages for text in passage.paraphrases]
    later = [_later(passage.text) for passage in passages]
    made = {
        "later beginning": [text for text in later if text],
        "swapped case": [text for it in passages if (text := it.text.swapcase()) != it.text],
    }
    return {kind: texts for kind, texts in ({"given": given} | made).items() if texts}


def _later(text: str) -> str:
    words = text.split(" ")
    return " ".join(words[max(1, len(words) // LATER) :])


def without(ids_SL: Tensor, passages: Encoded) -> Tensor:
    """The sequences of other text that hold no part of a passage, which would pull both ways."""
    lengths = passages.is_meant_ST.long() * torch.arange(1, passages.ids_ST.shape[1] + 1)
    known = {
        tuple(row[place : place + RUN_OF_TOKENS])
        for row, last in zip(passages.ids_ST.tolist(), lengths.amax(1).tolist(), strict=True)
        for place in range(1, last + 2 - RUN_OF_TOKENS)
    }
    kept = [
        place
        for place, row in enumerate(ids_SL.tolist())
        if not any(tuple(row[at : at + RUN_OF_TOKENS]) in known for at in range(len(row) - RUN_OF_TOKENS + 1))
    ]
    return ids_SL[kept]
