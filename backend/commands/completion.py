"""``mxd completion``: a script that lets a shell complete the command line."""

from __future__ import annotations

import re
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from typing import Literal

from pydantic_settings import CliPositionalArg

from backend.commands.base import Command


class CompletionCommand(Command):
    """Print a script that lets a shell complete commands, flags and their values.

    bash: mxd completion bash > ~/.local/share/bash-completion/completions/mxd. zsh: mxd completion zsh > a folder of
    $fpath, as _mxd. fish: mxd completion fish > ~/.config/fish/completions/mxd.fish.
    """

    shell: CliPositionalArg[Literal["bash", "zsh", "fish"]]
    """Which shell."""

    def run(self) -> int:
        """Print it."""
        import shtab

        from backend.commands.parsing import parser_of_everything  # which reads this class, too

        parser = parser_of_everything()
        for action in _actions(parser):
            values = re.match(r"\{(.+)\}", str(action.metavar))
            if values:
                action.choices = values[1].split(",")
            elif action.nargs != 0 and not action.choices:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        script = shtab.complete(parser, self.shell)
        self.report({"shell": self.shell, "script": script}, script)
        return 0


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    """Everything that a parser and those below it take."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)
        else:
            yield action
