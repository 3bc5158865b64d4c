"""Chat turns as text: by the tokenizer's template, whole, and a sentence where that cannot be."""

from __future__ import annotations

from copy import deepcopy

import pytest
from transformers import PreTrainedTokenizerBase

from tests.language_models import byte_tokenizer
from trainer.chat import Turn, chat_text, has_chat_template
from trainer.errors import UserError

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role == 'system' and not loop.first %}{{ raise_exception('system must come first') }}{% endif %}"
    "<{{ message.role }}>{{ message.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
USER = Turn(role="user", text="hello")


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    found = deepcopy(byte_tokenizer())
    found.add_special_tokens({"bos_token": "<s>"})
    found.chat_template = TEMPLATE
    return found


def test_a_chat_ends_where_the_assistant_speaks(tokenizer: PreTrainedTokenizerBase) -> None:
    turns = (Turn(role="system", text="Be brief."), USER)
    assert has_chat_template(tokenizer)
    assert chat_text(tokenizer, turns) == "<system>Be brief.</><user>hello</><assistant>"


def test_a_turn_of_the_assistants_is_gone_on_with(tokenizer: PreTrainedTokenizerBase) -> None:
    text = chat_text(tokenizer, (USER, Turn(role="assistant", text="Well,")))
    assert text == "<user>hello</><assistant>Well,"


def test_what_a_template_refuses_is_said(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(UserError, match="system must come first"):
        chat_text(tokenizer, (USER, Turn(role="system", text="late")))
    with pytest.raises(UserError, match="no turn"):
        chat_text(tokenizer, ())


def test_without_a_template() -> None:
    plain = byte_tokenizer()
    assert not has_chat_template(plain)
    with pytest.raises(UserError, match="plain text"):
        chat_text(plain, (USER,))
