"""``mxd --completion``: scripts that complete commands, flags and their values in a shell."""

from __future__ import annotations

from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator

from mxd.trainer.errors import UserError

SHELLS = ("bash", "zsh", "fish")


def print_script(shell: str) -> int:
    """Print the script of a shell and return the exit code.

    Raises:
        UserError: there is no script for it.
    """
    import shtab

    from mxd.backend.cli.parser import full_parser

    if shell not in SHELLS:
        raise UserError(f"No completion for the shell '{shell[:40]}'. Run: mxd --completion bash, zsh or fish")
    parser = full_parser()
    for action in _actions(parser):
        metavar = str(action.metavar)
        if metavar.startswith("{"):
            action.choices = metavar[1 : metavar.index("}")].split(",")
        elif action.nargs != 0 and not action.choices:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell))
    return 0


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    """Yield the arguments of a parser and of the commands below it."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
