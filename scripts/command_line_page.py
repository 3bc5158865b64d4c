"""A page of the site: every command with its flags, from the parser that reads them."""

from __future__ import annotations

import os
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from backend.commands.parsing import parser_of_everything

PAGE = "reference/command-line.md"
HEAD = """# Command line

One program, `mxd`. Every flag can also stand in a `.toml` or `.json` file that `--config` names; with `--json`
a command prints one document on stdout and nothing else there. Bad input ends with exit code 2 and one sentence.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page. MkDocs calls this by its name."""
    files.append(File.generated(config, PAGE, content=page()))
    return files


def page() -> str:
    """The page, as Markdown."""
    os.environ["COLUMNS"] = "84"  # what argparse wraps its lines to
    sections = (
        f"## {parser.prog}\n\n```text\n{parser.format_help().rstrip()}\n```\n"
        for parser in _leaves(parser_of_everything())
    )
    return "\n".join([HEAD, *sections])


def _leaves(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """The parsers of commands that do something, in the order of ``mxd --help``."""
    below = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for inner in action.choices.values():
            yield from _leaves(inner)
