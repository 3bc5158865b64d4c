"""``mxd``: one program, a command each for fitting, indexing, routing, steering and serving.

Only what tells the commands apart is imported here; each of them is when it is named.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence

from backend.commands.catalogue import COMMANDS, PURPOSE

BAD_INPUT = 2
NOBODY_READS = 141
"""As a shell sees a program that SIGPIPE ended."""


def main() -> None:
    """The entry point of ``mxd``: ends the process."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads has seen enough, as head does. The rest must go somewhere, or Python complains as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = NOBODY_READS
    sys.exit(code)


def run(words: Sequence[str]) -> int:
    """Run one command line. Returns the exit code; what is wrong with it is said in one line on stderr."""
    first = words[0] if words else "--help"
    if first in COMMANDS:
        from backend.commands.running import run_command

        return run_command(words)
    if first in ("-h", "--help"):
        overview().print_help()
        return 0
    named = " ".join(first.split())  # on one line, whatever was typed
    print(f"mxd: {named} is no command; begin with one that mxd --help lists, flags go after it.", file=sys.stderr)
    return BAD_INPUT


def overview() -> ArgumentParser:
    """Names and summaries of all commands, without their flags."""
    parser = ArgumentParser("mxd", description=PURPOSE, formatter_class=RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(title="subcommands")
    for name, entry in COMMANDS.items():
        commands.add_parser(name, help=entry.summary)
    return parser


if __name__ == "__main__":
    main()
