"""``mxd completion``: shell completion."""

from __future__ import annotations

from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from typing import ClassVar, Literal

from mxd.backend.cli.base import Command, Positional


class CompletionCommand(Command):
    """Print a script that completes commands, flags and their values in your shell.

    For zsh, write it to a folder of $fpath as _mxd.
    """

    examples: ClassVar = (
        "mxd completion bash > ~/.local/share/bash-completion/completions/mxd",
        "mxd completion zsh > ~/.zfunc/_mxd",
        "mxd completion fish > ~/.config/fish/completions/mxd.fish",
    )

    shell: Positional[Literal["bash", "zsh", "fish"]]
    """Shell to complete in."""

    def run(self) -> int:
        """Print the script."""
        import shtab

        from mxd.backend.cli.parser import full_parser

        parser = full_parser()
        for action in _actions(parser):
            metavar = str(action.metavar)
            if metavar.startswith("{"):
                action.choices = metavar[1 : metavar.index("}")].split(",")
            elif action.nargs != 0 and not action.choices:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        script = shtab.complete(parser, self.shell)
        self.report({"shell": self.shell, "script": script}, script)
        return 0


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    """Yield the arguments of a parser and of the commands below it."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
