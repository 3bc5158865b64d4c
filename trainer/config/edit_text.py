"""Compact text of edits: ``[RUN/]EXPERT:MODE[:STRENGTH]`` and any number of clauses.

======================  ===========================================================================
``@when:12>0.5``        the activation of expert 12 exceeds 0.5 units; also ``other-run/12>median``
``@when:12<=median``    the activation does not exceed the median over the expert's active tokens
``@prompt``             on the prompt
``@generated``          on generated tokens
``@first:20``           on the first 20 generated tokens
``@ramp:10``            the effect grows over the first 10 generated tokens
``@fade:10``            the effect shrinks over the first 10 generated tokens
``@until:TEXT``         until TEXT is generated; TEXT is a JSON string or the rest of the edit
======================  ===========================================================================

``parse_edit`` and ``format_edit`` are inverse to each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

EDIT_FORMATS = "EXPERT:scale:FACTOR, EXPERT:add:UNITS, EXPERT:set:UNITS or EXPERT:ablate"
CLAUSES = "@when:EXPERT>UNITS, @when:EXPERT<=median, @prompt, @generated, @first:N, @ramp:N, @fade:N and @until:TEXT"
_CLAUSE = re.compile(r'@(?:until:(?P<quoted>"(?:[^"\\]|\\.)*")|until:(?P<rest>.*)|(?P<word>[^@]*))', re.DOTALL)
_TEST = re.compile(r"(?:(?P<run>.+)/)?(?P<expert>\d+)(?P<sign>>|<=)(?P<level>.+)", re.DOTALL)
_COUNTED = ("first", "ramp", "fade")


def parse_edit(text: str) -> dict[str, Any]:
    """Return the fields of an edit, unvalidated.

    Raises:
        ValueError: the text is not an edit.
    """
    head, at, clauses = text.partition("@")
    run, _, edit = head.rpartition("/")
    expert, _, rest = edit.partition(":")
    mode, separator, strength = rest.partition(":")
    if not expert or not mode:
        raise ValueError(f"Invalid edit: '{text}'. Write {EDIT_FORMATS}, then clauses such as {CLAUSES}.")
    fields: dict[str, Any] = {"expert": expert, "mode": mode, "run": run or None}
    if separator:
        fields["strength"] = strength
    return fields | ({"when": _condition(at + clauses)} if at else {})


def _condition(text: str) -> dict[str, Any]:
    condition: dict[str, Any] = {}
    for name, value in _clauses(text):
        if name == "gates":
            condition.setdefault("gates", []).append(value)
        elif name in condition:
            raise ValueError(f"The clause {name} appears twice in '{text}'. Write it once.")
        else:
            condition[name] = value
    return condition


def _clauses(text: str) -> Iterator[tuple[str, Any]]:
    """Name and value of each clause."""
    place = 0
    while place < len(text):
        match = _CLAUSE.match(text, place)
        if match is None:
            raise ValueError(f"Invalid clause: '{text[place:]}'. Write clauses such as {CLAUSES}.")
        place = match.end()
        yield _clause(match)


def _clause(match: re.Match[str]) -> tuple[str, Any]:
    if match["quoted"] is not None:
        return "until", json.loads(match["quoted"], strict=False)
    if match["rest"] is not None:
        return "until", match["rest"]
    name, _, value = match["word"].partition(":")
    if name == "when":
        return "gates", _gate_test(value)
    if name in ("prompt", "generated") and not value:
        return "scope", name
    if name in _COUNTED:
        return name, value
    raise ValueError(f"Unknown clause: '@{match['word']}'. Use {CLAUSES}.")


def _gate_test(text: str) -> dict[str, Any]:
    match = _TEST.fullmatch(text)
    if match is None:
        raise ValueError(f"Invalid gate test: '{text}'. Write EXPERT>UNITS, EXPERT<=UNITS, or median for UNITS.")
    level = "above" if match["sign"] == ">" else "at_most"
    return {"run": match["run"], "expert": match["expert"], level: match["level"]}


def format_edit(edit: Mapping[str, Any]) -> str:
    """Return the compact text of an edit's fields, as ``Edit.model_dump`` gives them."""
    run = f"{edit['run']}/" if edit.get("run") else ""
    strength = "" if edit["mode"] == "ablate" else f":{_number(edit['strength'])}"
    return f"{run}{edit['expert']}:{edit['mode']}{strength}{_format_condition(edit.get('when') or {})}"


def _format_condition(condition: Mapping[str, Any]) -> str:
    clauses = [_format_gate_test(test) for test in condition.get("gates", ())]
    if condition.get("scope", "all") != "all":
        clauses.append(condition["scope"])
    clauses += [f"{name}:{condition[name]}" for name in _COUNTED if condition.get(name) is not None]
    if condition.get("until") is not None:
        clauses.append(f"until:{json.dumps(condition['until'])}")
    return "".join(f"@{clause}" for clause in clauses)


def _format_gate_test(test: Mapping[str, Any]) -> str:
    run = f"{test['run']}/" if test.get("run") else ""
    sign, level = (">", test["above"]) if test.get("above") is not None else ("<=", test["at_most"])
    return f"when:{run}{test['expert']}{sign}{level if level == 'median' else _number(level)}"


def _number(value: float) -> str:
    return repr(value).removesuffix(".0")
