"""Tokenizers: loading, the start token, token ids of a prompt, the text that each token adds, and chats as text.

A token by itself has no fixed text. A character can span several tokens, and a leading space can depend on the previous
token. The text of a token is therefore what it adds when a sequence is decoded token by token.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from tokenizers.decoders import ByteLevel

from mxd.trainer.config.base import Config
from mxd.trainer.config.training import TextConfig
from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.language_model.sources import local_folder
from mxd.trainer.language_model.untrusted.template_process import TEMPLATES, TemplateError
from mxd.trainer.language_model.untrusted.tokenizer_check import check_tokenizer_files
from mxd.trainer.utils.files import first_line, is_unreachable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from mxd.trainer.language_model.model import LanguageModel

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
DOCUMENT_SEPARATOR = "<|endoftext|>"
"""Token between documents in the pretraining of GPT-2, Pythia, Qwen, SmolLM2 and many others."""
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def load_tokenizer(source: str) -> PreTrainedTokenizerBase:
    """Load a tokenizer from the Hub, a folder or a GGUF file. Remote code is rejected.

    Raises:
        NotFoundError: ``source`` is a path, and there is no such folder or GGUF file.
        UserError: the tokenizer cannot be downloaded, is damaged, or needs a package that is not installed.
    """
    # Imported here: transformers takes seconds to import, and half of the commands need no tokenizer.
    from transformers import AutoTokenizer
    from transformers.utils.hub import cached_file

    folder = checked = local_folder(source)
    local = folder is None and is_unreachable()
    if folder is None:
        with suppress(OSError, ValueError):  # loading reports them
            path = cached_file(source, "tokenizer.json", local_files_only=local)
            checked = None if path is None else Path(path).parent
    if checked is not None:
        check_tokenizer_files(checked)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source if folder is None else str(folder), trust_remote_code=False, local_files_only=local
        )
    except Exception as error:
        expected = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ImportError)
        # tokenizers raises this base class itself for a tokenizer.json that is JSON but not a tokenizer.
        if not isinstance(error, expected) and type(error) is not Exception:
            raise
        raise UserError(
            f"The tokenizer of {source} cannot be loaded ({first_line(error)}). Check the name, or copy the folder "
            "again."
        ) from error
    return tokenizer


def decode_all(tokenizer: PreTrainedTokenizerBase, sequences: list[list[int]]) -> list[str]:
    """Texts of token sequences, without cleaning up spaces. Much faster for many short ones than ``batch_decode``."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return tokenizer.batch_decode(sequences, clean_up_tokenization_spaces=False)
    texts: list[str] = backend.decode_batch(sequences, skip_special_tokens=False)
    return texts


def with_start_token(text: TextConfig, tokenizer: PreTrainedTokenizerBase) -> TextConfig:
    """Return ``text`` with the name of its start token, which ``start_token_id`` chooses if it has none. Errors as
    ``start_token_id``."""
    return text.model_copy(update={"start_token": start_token_name(tokenizer, text.start_token)})


def start_token_name(tokenizer: PreTrainedTokenizerBase, name: str | None = None) -> str:
    """Text of the token whose id is ``start_token_id``."""
    return str(tokenizer.convert_ids_to_tokens(start_token_id(tokenizer, name)))


def start_token_id(tokenizer: PreTrainedTokenizerBase, name: str | None = None) -> int:
    """Id of the token before each document and prompt: ``name``, or the one that documents began with in pretraining.

    The latter is the token that the tokenizer itself puts before a text. Of the other models, most were pretrained on
    documents separated by ``<|endoftext|>``. Their end-of-text and beginning-of-text tokens can be chat markers, which
    before plain text give SmolLM2 a higher loss than no start token. Raises UserError if the tokenizer has no token
    ``name``, or none of these tokens.
    """
    if name is not None:
        number = tokenizer.convert_tokens_to_ids(name)  # an unknown name may become the token for unknown text
        if not isinstance(number, int) or tokenizer.convert_ids_to_tokens(number) != name:
            raise UserError(f"The tokenizer has no token '{name}'. Set --start-token to one of its tokens.")
        return number
    special = {token: added.content for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    first: list[int] = tokenizer("a", verbose=False)["input_ids"][:1]
    separator = [token for token, content in special.items() if content == DOCUMENT_SEPARATOR]
    candidates = [*(token for token in first if token in special), *separator]
    for token in (*candidates, tokenizer.eos_token_id, tokenizer.bos_token_id):
        if token is not None:
            return int(token)
    raise UserError(
        "The tokenizer has no start token: neither an end-of-text nor a beginning-of-text token. "
        "Set eos_token in its tokenizer_config.json."
    )


def vocabulary_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """One more than the largest id of a token; ids may have gaps."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def token_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Text that each token adds when ``ids`` are decoded one after the other.

    Has one entry per id; the entries join to the decoded text. An entry is empty if its character continues in the next
    token, and for ids without a token. Special tokens are written by name. Invalid UTF-8 gives U+FFFD.

    Time is linear in the length for byte-level and SentencePiece-like tokenizers, including byte fallback. It is
    quadratic for tokenizers whose tokens cannot be decoded in pairs.
    """
    int_ids = [int(token) for token in ids]
    names: list[str | None] = list(tokenizer.convert_ids_to_tokens(int_ids))
    known = [index for index, name in enumerate(names) if name is not None]
    texts = [""] * len(names)
    known_ids, known_names = [int_ids[index] for index in known], [str(names[index]) for index in known]
    whole = _decode(tokenizer, known_ids)
    if tokenizer.is_fast and isinstance(tokenizer.backend_tokenizer.decoder, ByteLevel):
        pieces = decode_each(map(_byte_level_bytes, known_names))
    else:
        pieces = _pairwise_texts(tokenizer, known_ids, known_names)
    if "".join(pieces) != whole:
        ends = [0]  # in quadratic time
        for stop in range(1, len(known_ids)):
            shared = os.path.commonprefix([_decode(tokenizer, known_ids[:stop]), whole])  # noqa: RUF071 - of characters
            ends.append(max(ends[-1], len(shared)))
        pieces = [whole[start:end] for start, end in pairwise([*ends, len(whole)])]
    for index, text in zip(known, pieces, strict=True):
        texts[index] = text
    return texts


def _decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text


# ---------------------------------------------------------------- byte-level, as in GPT-2: each character is a byte
# GPT-2's mapping: printable Latin-1 bytes are their own characters, the others follow from U+0100 on.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES_BY_CHARACTER = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + i): byte for i, byte in enumerate(_OTHERS)}


def _byte_level_bytes(name: str) -> bytes:
    try:
        return bytes([_BYTES_BY_CHARACTER[character] for character in name])
    except KeyError:
        return name.encode()  # an added token, which is written by name


def decode_each(pieces: Iterable[bytes]) -> list[str]:
    """Text that each piece adds to the UTF-8 text; an unfinished character at the end belongs to the last piece."""
    texts: list[str] = []
    rest = b""
    for piece in pieces:
        rest += piece
        text, read = codecs.utf_8_decode(rest, "replace", False)
        rest = rest[read:]
        texts.append(text)
    if texts:
        texts[-1] += rest.decode("utf-8", "replace")
    return texts


def token_bytes(tokenizer: PreTrainedTokenizerBase) -> list[bytes] | None:
    """Bytes of each token of a byte-level tokenizer, by id; empty for ids without a token. Returns None for other
    tokenizers, because the text of their tokens depends on the previous token."""
    if not (tokenizer.is_fast and isinstance(tokenizer.backend_tokenizer.decoder, ByteLevel)):
        return None
    names: list[str | None] = list(tokenizer.convert_ids_to_tokens(list(range(vocabulary_size(tokenizer)))))
    return [b"" if name is None else _byte_level_bytes(name) for name in names]


# ---------------------------------------------------------------- others: decoded in pairs
def _pairwise_texts(tokenizer: PreTrainedTokenizerBase, ids: list[int], names: list[str]) -> list[str]:
    texts: list[str] = []
    before: list[int] = []
    for is_byte, indices in groupby(range(len(names)), key=lambda index: bool(_BYTE_TOKEN.fullmatch(names[index]))):
        run = list(indices)
        # Runs of byte tokens such as <0xE2> are decoded together, every other token alone.
        for unit in [run] if is_byte else [[index] for index in run]:
            unit_ids = [ids[index] for index in unit]
            text = _decode(tokenizer, before + unit_ids).removeprefix(_decode(tokenizer, before) if before else "")
            texts.extend(_split([names[index] for index in unit], text))
            before = unit_ids
    return texts


def _split(names: list[str], text: str) -> list[str]:
    """Split a unit's text over its tokens: all to a single token, each character to the byte that ends it."""
    if len(names) == 1:
        return [text]
    raw = [bytes.fromhex(name[3:5]) for name in names]
    valid = decode_each(raw)
    if "".join(valid) == text:
        return valid
    # Byte fallback decodes a run with any invalid byte to one U+FFFD per byte.
    return list(text) if len(text) == len(names) else [*[""] * (len(names) - 1), text]


class TokenStream:
    """Decodes ids one at a time into the characters that each adds.

    Holds a character back until its last byte. Each push decodes only the ids since the last finished text and those of
    the text before it. ``tokenizers.DecodeStream`` is not used: after byte-fallback tokens that are not valid UTF-8 it
    raises an exception, which would end a generation.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, before: list[int]) -> None:
        """``before`` are the ids of the text that is continued; a first leading space depends on them."""
        self._tokenizer = tokenizer
        self._ids = list(before[-4:])
        self._num_decoded = len(self._ids)
        self._start = 0

    def copy(self) -> TokenStream:
        twin = copy(self)
        twin._ids = list(self._ids)
        return twin

    def push(self, token: int) -> str:
        """Return the characters that ``token`` adds; empty while a character is unfinished."""
        self._ids.append(token)
        decoded = _decode(self._tokenizer, self._ids[self._start : self._num_decoded])
        text = _decode(self._tokenizer, self._ids[self._start :])
        if text.endswith(REPLACEMENT) and len(self._ids) - self._num_decoded < 4:
            return ""
        self._start, self._num_decoded = self._num_decoded, len(self._ids)
        return text[len(decoded) :]


def after_start(start: int, ids: Sequence[int]) -> list[int]:
    """The start token and the ids of a text. A text that begins with the token itself gets no second one."""
    return list(ids) if ids and ids[0] == start else [start, *ids]


def prompt_ids(
    language_model: LanguageModel, text: str | Sequence[int], new_tokens: int = 0, start_token: str | None = None
) -> list[int]:
    """Token ids of a text, with the start token first; by default the one of ``start_token_id``.

    A text that has been tokenised is given as these ids. Then only its length is checked. Raises UserError (the
    language model has no embedding of a token) or TooLongError (the ids and ``new_tokens`` further ones exceed the
    language model's context length).
    """
    if isinstance(text, str):
        tokenizer = language_model.tokenizer
        text_ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        ids = after_start(start_token_id(tokenizer, start_token), text_ids)
        language_model.check_ids(max(ids))
    else:
        ids = list(text)
    if len(ids) + new_tokens > language_model.max_tokens:
        more = f" plus {new_tokens} new ones" if new_tokens else ""
        raise TooLongError(
            f"The text is too long: {len(ids)} tokens{more}. {language_model.source} accepts "
            f"{language_model.max_tokens}. Shorten the text."
        )
    return ids


def single_texts(language_model: LanguageModel, ids: set[int]) -> dict[int, str]:
    """Text of each token inside a text, so with its leading space."""
    cache = language_model.single_texts
    missing = sorted(ids - cache.keys())
    if missing:
        tokenizer = language_model.tokenizer
        before: list[int] = tokenizer("a", add_special_tokens=False)["input_ids"]
        prefix, *texts = tokenizer.batch_decode([before, *([*before, token] for token in missing)])
        cache.update((token, text.removeprefix(prefix)) for token, text in zip(missing, texts, strict=True))
    return {token: cache[token] for token in ids}


def single_token(language_model: LanguageModel, text: str) -> int:
    """Id of the only token of a text. Raises UserError if the text is not exactly one token."""
    ids: list[int] = language_model.tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise UserError(
            f"The target {text!r} is {len(ids)} tokens. Give one token, such as ' the' with its leading space, or "
            "explain a continuation."
        )
    return ids[0]


# ---------------------------------------------------------------- chats

Role = Literal["system", "user", "assistant"]


class Turn(Config):
    """One message of a chat."""

    role: Role
    text: Annotated[str, Field(max_length=200_000)]


def has_chat_template(tokenizer: PreTrainedTokenizerBase) -> bool:
    return bool(getattr(tokenizer, "chat_template", None))


def chat_text(tokenizer: PreTrainedTokenizerBase, turns: Sequence[Turn], start_token: str | None = None) -> str:
    """Format chat turns as one text that the assistant continues.

    If the last turn is the assistant's, the text ends inside that turn. If the template writes ``start_token`` first,
    it is removed, because every text gets one before it is routed or continued. By default, it is that of
    ``start_token_id``. Raises UserError if the tokenizer has no chat template, there are no turns, or the template
    rejects them.
    """
    if not has_chat_template(tokenizer):
        raise UserError("The tokenizer of this language model has no chat template. Write the prompt as plain text.")
    if not turns:
        raise UserError("The chat has no turns. Add a user turn.")
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    continues = turns[-1].role == "assistant"
    try:
        text = TEMPLATES.render(
            {
                "conversations": [messages],
                "chat_template": tokenizer.get_chat_template(),
                "add_generation_prompt": not continues,
                "continue_final_message": continues,
                **tokenizer.special_tokens_map,
            }
        )
    except TemplateError as error:
        raise UserError(f"The chat template rejects these turns ({first_line(error)}). Change their order.") from error
    except ValueError as error:
        raise UserError(f"The tokenizer's chat template cannot be used ({first_line(error)}).") from error
    # Not always the beginning-of-text token, which can be a chat marker that has to stay.
    return text.removeprefix(start_token_name(tokenizer, start_token))
