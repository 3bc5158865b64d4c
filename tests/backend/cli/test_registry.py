"""The command overview and the help of every command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from subprocess import CompletedProcess

import pytest

from mxd.backend.cli.main import main
from mxd.backend.cli.parser import command_class, command_from
from mxd.backend.cli.registry import COMMANDS
from mxd.trainer.errors import UserError
from tests.helpers.forking.torchrun import run_processes

Capture = pytest.CaptureFixture[str]


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
