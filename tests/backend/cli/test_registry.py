"""The command overview and the help of every command."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator, Sequence
from subprocess import CompletedProcess

import pytest

from mxd.backend.cli.main import main, run
from mxd.backend.cli.parser import command_class, command_from, full_parser, options
from mxd.backend.cli.registry import COMMANDS, GROUPS, SECTIONS, overview
from mxd.trainer.errors import UserError
from tests.helpers.forking.torchrun import run_processes

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


def test_commands_that_do_not_share_work_are_refused_under_torchrun() -> None:
    assert [name for name in COMMANDS if command_class(name).shares_work] == ["train", "lab train", "index"]
    message = once(run_processes(main, "evaluate", "my run", "--dataset", "a.jsonl", "--tokens", "1k"))
    assert message == (
        "'mxd evaluate' needs a single process, but torchrun started 2. Run it without torchrun: "
        "mxd evaluate 'my run' --dataset a.jsonl --tokens 1k"
    )
    (alone,) = run_processes(main, "route", "none", "text", processes=1)
    assert alone.stderr.startswith("mxd: Unknown run 'none'.")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["stear"], "Unknown command 'stear'. Did you mean 'steer'?"),
        (["train", "--lerning-rate", "1"], "Unknown option '--lerning-rate'. Did you mean '--learning-rate'?"),
        (["train", "--layer", "1"], "Missing LANGUAGE_MODEL, --dataset and --tokens."),
        (["index", "none", "--dataset", "text.jsonl", "--tokens", "1k"], "Unknown run 'none'."),
    ],
)
def test_one_of_several_processes_reports_a_wrong_command_line(words: list[str], sentence: str) -> None:
    assert once(run_processes(main, *words, processes=3)).startswith(sentence)


def once(done: Sequence[CompletedProcess[str]]) -> str:
    """The message that one of several processes printed. All ended with the same code."""
    assert [one.returncode for one in done] == [2] * len(done)
    (number,) = (number for number, one in enumerate(done) if one.stderr)
    prefix = f"mxd: Process {number} of {len(done)}: "
    assert done[number].stderr.startswith(prefix)
    assert not any(one.stdout for one in done)
    return done[number].stderr.removeprefix(prefix).rstrip()
