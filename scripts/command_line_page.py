"""Generate the command line reference of the documentation from the parser."""

from __future__ import annotations

import os

from mxd.backend.cli.parser import command_parser
from mxd.backend.cli.registry import SECTIONS

WIDTH = 84
"""Line width of the help texts."""
HEAD = """# Command line

The global options `--data`, `--database`, `--config` and `--json` may be given before or after the command.
`--config` names a `.toml` or `.json` file of options, or a preset. Flags take precedence over the file. With `--json`,
a command prints one JSON document on stdout. Invalid input ends with exit code 2 and one line on stderr.
`mxd --version` prints the versions in use.
"""


def page() -> str:
    """Return the page as Markdown: one section per command group, one subsection per command."""
    os.environ["COLUMNS"] = str(WIDTH)
    lines = [HEAD]
    for title, commands in SECTIONS.items():
        lines.append(f"## {title}\n")
        for name in commands:
            lines.append(f"### mxd {name}\n\n```text\n{command_parser(name).format_help().rstrip()}\n```\n")
    return "\n".join(lines)
