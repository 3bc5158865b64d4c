"""The command overview and the help of every command."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator

import pytest

from mxd.backend.cli import runner
from mxd.backend.cli.main import run
from mxd.backend.cli.parser import command_class, command_from, full_parser, options
from mxd.backend.cli.registry import COMMANDS, GROUPS, SECTIONS, overview
from mxd.trainer.errors import UserError

Capture = pytest.CaptureFixture[str]


def leaves(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """Yield the parsers of all commands below a parser."""
    below = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for inner in action.choices.values():
            yield from leaves(inner)


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """Help of every command, from the parser of the whole command line."""
    return {parser.prog.removeprefix("mxd "): parser.format_help() for parser in leaves(full_parser())}


def test_the_overview_lists_every_command_once() -> None:
    lines = overview().splitlines()
    names = {name.partition(" ")[0] for name in COMMANDS}
    assert {name: sum(line.startswith(f"  {name} ") for line in lines) for name in names} == dict.fromkeys(names, 1)
    assert [f"{title}:" in lines for title in SECTIONS] == [True] * 5
    for group in GROUPS:
        below = [name.removeprefix(f"{group} ") for name in COMMANDS if name.startswith(f"{group} ")]
        assert [name for name in below if f"  {name} " not in overview(group)] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_complete(name: str, helps: dict[str, str], capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        run([*name.split(), "--help"])
    printed = capsys.readouterr().out
    assert printed == helps[name]
    for option in options(command_class(name)).values():
        assert option.help, option.name
        assert option.label in printed or option.is_positional
    assert len(command_class(name).examples) == 3


@pytest.mark.parametrize("line", sorted({line for name in COMMANDS for line in command_class(name).examples}))
def test_every_example_is_accepted(line: str) -> None:
    words = shlex.split(line.partition(" > ")[0])
    assert words[0] == "mxd"
    try:
        command_from(words[1:])
    except UserError as error:
        pytest.fail(str(error))


def test_commands_that_do_not_share_work_are_refused_under_torchrun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert run(["evaluate", "my run", "--dataset", "a.jsonl", "--tokens", "1k"]) == 2
    assert capsys.readouterr().err == (
        "mxd: 'mxd evaluate' needs a single process, but torchrun started 2. Run it without torchrun: "
        "mxd evaluate 'my run' --dataset a.jsonl --tokens 1k\n"
    )
    assert run(["lab", "protect", "a", "--passages", "b.txt", "--retain", "c.jsonl"]) == 2
    assert "'mxd lab protect' needs a single process" in capsys.readouterr().err
    assert [name for name in COMMANDS if command_class(name).shares_work] == ["train", "lab train", "index"]
    monkeypatch.setattr(runner, "HEAD_START_SECONDS", 0.0)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert run(["evaluate", "my run", "--dataset", "a.jsonl", "--tokens", "1k"]) == 2
    assert capsys.readouterr().err == "", "the first process of each machine tells it"
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert run(["route", "none", "text"]) == 2
    assert "Unknown run 'none'." in capsys.readouterr().err
