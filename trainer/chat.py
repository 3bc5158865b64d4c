"""Chat turns as the text that a language model was tuned on, by its tokenizer's own template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from trainer.config import Config
from trainer.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Role = Literal["system", "user", "assistant"]


class Turn(Config):
    """What one side says in a chat."""

    role: Role
    text: Annotated[str, Field(max_length=200_000)]


def has_chat_template(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer says how a chat is written."""
    return bool(getattr(tokenizer, "chat_template", None))


def chat_text(tokenizer: PreTrainedTokenizerBase, turns: Sequence[Turn]) -> str:
    """The chat as one text, which ends where the assistant is to speak or, after a turn of its own, to go on.

    A start token that the template writes is left out: every text gets one in front when it is routed or continued.

    Raises:
        UserError: the tokenizer has no template, there are no turns, or the template does not take these.
    """
    from jinja2 import TemplateError  # who only reads what a turn is has no need of it

    if not has_chat_template(tokenizer):
        raise UserError("The tokenizer of this language model has no chat template; write the prompt as plain text.")
    if not turns:
        raise UserError("There is no turn in the chat; write what the user says.")
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    unfinished = turns[-1].role == "assistant"
    try:
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=not unfinished, continue_final_message=unfinished
        )
    except (TemplateError, ValueError) as error:
        raise UserError(f"The chat template does not take these turns ({error}); change their order.") from error
    assert isinstance(text, str)
    start = tokenizer.bos_token
    return text.removeprefix(start) if start else text
