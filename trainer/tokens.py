"""Tokenizers: load one, find the token that separates documents, and say what text each token adds.

A token is not a text. A character may be spread over several tokens, and whether a leading space is written may depend
on the token before. What tokens add is therefore read off decoding them one after the other.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers.decoders import ByteLevel

from trainer import hub
from trainer.errors import NotFoundError, UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Stands for bytes that are no UTF-8."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def load_tokenizer(source: str) -> PreTrainedTokenizerBase:
    """Load a tokenizer by hub name or from a folder. Remote code is refused.

    Raises:
        NotFoundError: ``source`` looks like a folder and there is none.
        UserError: it cannot be downloaded, is damaged, or needs a package that is not installed.
    """
    # transformers takes seconds to import, and half of the commands need no tokenizer.
    from transformers import AutoTokenizer

    folder = Path(source).expanduser()
    if source.startswith(("/", ".", "~")) and not folder.is_dir():
        raise NotFoundError(f"There is no folder {source}; give a folder with a tokenizer.json or a hub name.")
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            str(folder) if folder.is_dir() else source,
            trust_remote_code=False,
            local_files_only=not folder.is_dir() and hub.out_of_reach(),
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise _cannot_load(source, error) from error
    except Exception as error:
        # A tokenizer.json that is JSON but no tokenizer: the Rust side raises this very class, and only it is meant.
        if type(error) is not Exception:
            raise
        raise _cannot_load(source, error) from error
    return tokenizer


def _cannot_load(source: str, error: Exception) -> UserError:
    lines = [line.strip().rstrip(".:;") for line in str(error).splitlines() if line.strip()]
    reason = lines[0][:300] if lines else type(error).__name__
    return UserError(f"The tokenizer of {source} cannot be loaded ({reason}); check the name, or mend the folder.")


def separator_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token put before each document: end of text, or beginning of text where there is none.

    Raises:
        UserError: the tokenizer has neither.
    """
    for token in (tokenizer.eos_token_id, tokenizer.bos_token_id):
        if token is not None:
            return int(token)
    raise UserError(
        "The tokenizer has neither an end-of-text nor a beginning-of-text token to put between documents; "
        "name one as eos_token in its tokenizer_config.json."
    )


def token_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """The text that each token adds when ``ids`` are decoded one after the other.

    As long as ``ids``; joined, it is the decoded whole. Empty where a character continues in the next token, and for
    ids without a token. Special tokens are written as they are. Bytes that are no UTF-8 give U+FFFD.

    Takes time linear in the length for byte-level and SentencePiece-like tokenizers, byte fallback included, and
    quadratic for others whose tokens cannot be decoded two by two.
    """
    whole_ids = [int(token) for token in ids]
    names: list[str | None] = list(tokenizer.convert_ids_to_tokens(whole_ids))
    known = [place for place, name in enumerate(names) if name is not None]
    texts = [""] * len(names)
    for place, text in zip(known, _known_texts(tokenizer, [whole_ids[place] for place in known]), strict=True):
        texts[place] = text
    return texts


def _known_texts(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[str]:
    whole = _decode(tokenizer, ids)
    names = [str(name) for name in tokenizer.convert_ids_to_tokens(ids)]
    byte_level = tokenizer.is_fast and isinstance(tokenizer.backend_tokenizer.decoder, ByteLevel)
    texts = _byte_level_texts(names) if byte_level else _pairwise_texts(tokenizer, ids, names)
    return texts if "".join(texts) == whole else _prefix_texts(tokenizer, ids, whole)


def _decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text


# ---------------------------------------------------------------- byte-level, as GPT-2's: tokens are bytes in disguise


def _bytes_by_character() -> dict[str, int]:
    """GPT-2's disguise: printable Latin-1 bytes are their own characters, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES_BY_CHARACTER = _bytes_by_character()


def _byte_level_bytes(name: str) -> bytes:
    try:
        return bytes([_BYTES_BY_CHARACTER[character] for character in name])
    except KeyError:
        return name.encode()  # an added token, which is written as it is


def _byte_level_texts(names: list[str]) -> list[str]:
    return decoded_one_by_one([_byte_level_bytes(name) for name in names])


def decoded_one_by_one(pieces: Iterable[bytes]) -> list[str]:
    """What each piece adds to the UTF-8 text; an unfinished character at the end is the last one's."""
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
    """What each token of a byte-level tokenizer adds wherever it stands, by id; none for ids without a token.

    None as a whole for other tokenizers, whose tokens depend on the one before.
    """
    if not (tokenizer.is_fast and isinstance(tokenizer.backend_tokenizer.decoder, ByteLevel)):
        return None
    names: list[str | None] = list(tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))))
    return [b"" if name is None else _byte_level_bytes(name) for name in names]


# ---------------------------------------------------------------- others: what a token adds to the one before it


def _units(names: list[str]) -> Iterator[range]:
    """Places of tokens that are decoded together: runs of byte tokens such as <0xE2>, and every other one by itself."""
    for is_byte, places in groupby(range(len(names)), key=lambda place: bool(_BYTE_TOKEN.fullmatch(names[place]))):
        run = list(places)
        yield from [range(run[0], run[-1] + 1)] if is_byte else (range(place, place + 1) for place in run)


def _pairwise_texts(tokenizer: PreTrainedTokenizerBase, ids: list[int], names: list[str]) -> list[str]:
    texts: list[str] = []
    before: list[int] = []
    for unit in _units(names):
        here = ids[unit.start : unit.stop]
        text = _decode(tokenizer, before + here).removeprefix(_decode(tokenizer, before) if before else "")
        texts.extend(_spread(names[unit.start : unit.stop], text))
        before = here
    return texts


def _spread(names: list[str], text: str) -> list[str]:
    """Give a unit's text to its tokens: whole to one, character by character to the bytes they end with."""
    if len(names) == 1:
        return [text]
    raw = [bytes.fromhex(name[3:5]) for name in names]
    valid = decoded_one_by_one(raw)
    if "".join(valid) == text:
        return valid
    # Byte fallback decodes a run with any invalid byte to one U+FFFD a byte.
    return list(text) if len(text) == len(names) else [*[""] * (len(names) - 1), text]


# ---------------------------------------------------------------- any tokenizer, slowly


def _shared_length(left: str, right: str) -> int:
    """How many characters two texts begin with in common."""
    if right.startswith(left):
        return len(left)
    differing = (place for place, (one, other) in enumerate(zip(left, right, strict=False)) if one != other)
    return next(differing, len(right))


def _prefix_texts(tokenizer: PreTrainedTokenizerBase, ids: list[int], whole: str) -> list[str]:
    ends = [0]
    for stop in range(1, len(ids)):
        ends.append(max(ends[-1], _shared_length(_decode(tokenizer, ids[:stop]), whole)))
    return [whole[start:end] for start, end in zip(ends, chain(ends[1:], [len(whole)]), strict=True)]
