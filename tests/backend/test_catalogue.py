"""The list of commands says what the commands themselves say, and each is read alone as it is among all."""

from __future__ import annotations

from argparse import ArgumentParser, _SubParsersAction

import pytest

from backend.cli import overview, run
from backend.commands.catalogue import COMMANDS
from backend.commands.parsing import parser_of_everything

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def everything() -> ArgumentParser:
    """Of the whole command line."""
    return parser_of_everything()


def test_the_overview_is_that_of_the_whole_parser(everything: ArgumentParser) -> None:
    assert overview().format_help() == everything.format_help()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_alone_takes_what_it_takes_among_all(name: str, everything: ArgumentParser, capsys: Capture) -> None:
    (commands,) = (action for action in everything._actions if isinstance(action, _SubParsersAction))
    with pytest.raises(SystemExit, match="0"):
        run([name, "--help"])
    assert capsys.readouterr().out == commands.choices[name].format_help()


def test_every_summary_is_a_few_words_and_no_sentence() -> None:
    assert [
        entry.summary for entry in COMMANDS.values() if entry.summary.endswith(".") or len(entry.summary) > 80
    ] == []
