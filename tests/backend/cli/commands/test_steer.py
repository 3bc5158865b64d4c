"""The edits of ``mxd steer``: compact text, with errors that say what to write."""

from __future__ import annotations

import pytest

from mxd.backend.cli.commands.prompt import parse_edit
from mxd.trainer.config import Edit
from mxd.trainer.config.steering import Condition, GateTest
from mxd.trainer.errors import UserError


def test_edits_have_conditions() -> None:
    when = Condition(gates=(GateTest(expert=12, above="median"),), scope="generated", ramp=8)
    assert parse_edit("other/40:add:2@when:12>median@generated@ramp:8") == Edit(
        expert=40, mode="add", strength=2, run="other", when=when
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("12", "Invalid --edit: '12'. Write EXPERT:scale:FACTOR"),
        ("12:raise:3", "Invalid --edit: '12:raise:3'. Write EXPERT:scale:FACTOR"),
        ("12:add:3@fist:2", "Unknown clause: '@fist:2'"),
    ],
)
def test_errors(word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_edit(word)


@pytest.mark.parametrize(
    "word", ["", "x:ablate", "3:off", "3", "3:", "3:scale:", "3:scale:x", "-1:ablate", "3:add:nan", "3:add:1:2"]
)
def test_invalid_edits(word: str) -> None:
    with pytest.raises(UserError, match="Invalid --edit"):
        parse_edit(word)


def test_edits() -> None:
    assert parse_edit("12:scale:3").model_dump(exclude_none=True) == {"expert": 12, "mode": "scale", "strength": 3.0}
    assert parse_edit("40:ablate").mode == "ablate"
