"""Chat turns as the text that a language model was tuned on, formatted by its tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from mxd.trainer.config.base import Config
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.tokenizer import start_token_name
from mxd.trainer.language_model.untrusted.template_process import TEMPLATES, TemplateError
from mxd.trainer.utils.files import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
