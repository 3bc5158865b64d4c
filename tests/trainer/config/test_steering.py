"""Compact text of edits: inverse to formatting, with clear errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mxd.trainer.config import Edit
from mxd.trainer.config.steering import Condition, GateTest

EXPERTS, NAMES = st.integers(0, 10**6), st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
STRENGTHS = st.floats(-1000, 1000)
COUNTS = st.none() | st.integers(1, 4096)
LEVELS = st.just("median") | STRENGTHS


@st.composite
def gate_tests(draw: st.DrawFn) -> GateTest:
    name = draw(st.sampled_from(["above", "at_most"]))
    return GateTest.model_validate({"expert": draw(EXPERTS), "run": draw(st.none() | NAMES), name: draw(LEVELS)})


@st.composite
def edits(draw: st.DrawFn) -> Edit:
    mode = draw(st.sampled_from(["scale", "add", "set", "ablate"]))
    scope = draw(st.sampled_from(["all", "generated", "prompt"]))
    ending = {} if scope == "prompt" else {name: draw(COUNTS) for name in ("first", "ramp", "fade")}
    until = None if scope == "prompt" else draw(st.none() | st.text(min_size=1, max_size=200))
    tests = tuple(draw(st.lists(gate_tests(), max_size=4)))
    when = Condition.model_validate({"gates": tests, "scope": scope, "until": until, **ending})
    strength = 1.0 if mode == "ablate" else draw(STRENGTHS)
    return Edit.model_validate(
        {
            "expert": draw(EXPERTS),
            "mode": mode,
            "strength": strength,
            "run": draw(st.none() | NAMES),
            "when": None if when == Condition() else when,
        }
    )


@given(edits())
def test_parsing_inverts_formatting(edit: Edit) -> None:
    assert Edit.model_validate(str(edit)) == edit


@given(st.text(max_size=60) | st.from_regex(r"\d{1,3}:(add|set):\d(@(when:\d+[<>]=?\w+|first:\d+|until:.{0,5}|\w+))*"))
def test_any_text_is_an_edit_or_a_validation_error(text: str) -> None:
    try:
        edit = Edit.model_validate(text)
    except ValidationError:
        return
    assert Edit.model_validate(str(edit)) == edit


def test_an_unquoted_stop_text_is_the_rest_of_the_edit() -> None:
    edit = Edit.model_validate("12:add:4@first:20@until:. @x")
    assert edit.when == Condition(first=20, until=". @x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Write EXPERT:scale:FACTOR"),
        ("12", "Write EXPERT:scale:FACTOR"),
        ("12:add:4@fist:3", "Unknown clause: '@fist:3'"),
        ("12:add:4@when:3", "Write EXPERT>UNITS"),
        ("12:add:4@first:3@first:4", "appears twice"),
        ("12:add:4@prompt@first:4", "scope cannot be prompt"),
        ("12:add:4@when:3>often", "median"),
    ],
)
def test_errors_say_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Edit.model_validate(text)


def test_a_gate_test_has_one_level() -> None:
    for levels in ({}, {"above": 0, "at_most": 1}):
        with pytest.raises(ValidationError, match="either above or at_most"):
            GateTest.model_validate({"expert": 1, **levels})
