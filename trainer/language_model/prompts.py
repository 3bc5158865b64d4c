"""Token ids of a prompt, and the texts of single tokens."""

from __future__ import annotations

from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import start_token_id


def prompt_ids(
    language_model: LanguageModel, text: str, new_tokens: int = 0, start_token: str | None = None
) -> list[int]:
    """Token ids of a text, with the start token first; by default the one of ``start_token_id``.

    Raises:
        UserError: the language model has no embedding of a token.
        TooLongError: the ids and ``new_tokens`` further ones exceed the language model's context length.
    """
    tokenizer = language_model.tokenizer
    text_ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    ids = [start_token_id(tokenizer, start_token), *text_ids]
    language_model.check_ids(max(ids))
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
    """Id of the only token of a text.

    Raises:
        UserError: the text is not exactly one token.
    """
    ids: list[int] = language_model.tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise UserError(
            f"The target {text!r} is {len(ids)} tokens. Give one token, such as ' the' with its leading space, or "
            "explain a continuation."
        )
    return ids[0]
