"""Chat turns as text by the tokenizer's template, and its errors."""

from copy import deepcopy

import pytest
from transformers import PreTrainedTokenizerBase

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.tokenizer import Turn, chat_text, has_chat_template
from mxd.trainer.language_model.untrusted import template_process
from tests.helpers.runs import ENDLESS_TEMPLATE, byte_tokenizer

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role == 'system' and not loop.first %}{{ raise_exception('system must come first') }}{% endif %}"
    "<{{ message.role }}>{{ message.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
USER = Turn(role="user", text="hello")


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    actual = deepcopy(byte_tokenizer())
    actual.chat_template = TEMPLATE
    return actual


def test_a_chat_is_formatted_up_to_the_assistants_turn(tokenizer: PreTrainedTokenizerBase) -> None:
    system, assistant = Turn(role="system", text="Be brief."), Turn(role="assistant", text="Well,")
    assert has_chat_template(tokenizer)
    assert chat_text(tokenizer, (system, USER)) == "<system>Be brief.</><user>hello</><assistant>"
    assert chat_text(tokenizer, (USER, assistant)) == "<user>hello</><assistant>Well,", "it is continued"


def test_only_the_start_token_of_the_run_is_removed(tokenizer: PreTrainedTokenizerBase) -> None:
    assert chat_text(tokenizer, (USER,), "a") == "<|endoftext|><user>hello</><assistant>"
    tokenizer.add_special_tokens({"bos_token": "<start>"})
    assert chat_text(tokenizer, (USER,)) == "<start><user>hello</><assistant>", "it is a chat marker"
    assert chat_text(tokenizer, (USER,), "<start>") == "<user>hello</><assistant>"


def test_errors_of_the_template(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(UserError, match="system must come first"):
        chat_text(tokenizer, (USER, Turn(role="system", text="late")))
    with pytest.raises(UserError, match="no turn"):
        chat_text(tokenizer, ())
    tokenizer.chat_template = None
    assert not has_chat_template(tokenizer)
    with pytest.raises(UserError, match="plain text"):
        chat_text(tokenizer, (USER,))


HOSTILE = {
    "loops": (ENDLESS_TEMPLATE, "more than"),
    "memory": ("{{ 'a' * 10 ** 12 }}", "MemoryError|more than"),
    "long text": ("{{ 'a' * 10 ** 7 }}", "too long"),
    "syntax": ("{% for %}", "TemplateSyntaxError"),
    "undefined": ("{{ nothing.at.all }}", "UndefinedError"),
    "division": ("{{ 1 / 0 }}", "ZeroDivisionError"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    "private": ("{{ messages.__class__.__mro__ }}", "SecurityError"),
}


def test_a_hostile_template_ends_with_an_error(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_process, "LIMIT_SECONDS", 1.0)
    template_process.TEMPLATES.close()  # the next one has the limit above
    for template, sentence in HOSTILE.values():
        tokenizer.chat_template = template
        with pytest.raises(UserError, match=sentence) as raised:
            chat_text(tokenizer, (USER,))
        assert "\n" not in str(raised.value)
    tokenizer.chat_template = TEMPLATE
    assert chat_text(tokenizer, (USER,)) == "<user>hello</><assistant>", "the next chat is formatted"
