"""Errors of the trainer and the backend, which name settings by their flags, with Python's names instead."""

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import mxd
from mxd.trainer.errors import UserError

P = ParamSpec("P")
T = TypeVar("T")

_SHELL_OR_FLAG = re.compile(
    r"'(?P<program>mxd|pip|torchrun) (?P<command>[a-z]*)(?P<words>[^']*)'"
    r"|--(?P<flag>[a-z](?:[a-z-]*[a-z])?)(?:=(?P<value>[\w-]+(?:\.\w+)*)| (?=[\d.]+\b)(?P<number>[\d.]*\d))?"
)
_VALUES = {"resume": '"if-any"', "seen-text": "True", "experts": "experts=[...]"}


def speaks_python(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator of public functions and methods: errors name keyword arguments and functions, not flags and commands.

    ``--context-length 64`` becomes ``context_length=64``, and ``'mxd index my-run --tokens N'`` becomes
    ``mxd.index("my-run", tokens="N")``.
    """

    @wraps(function)
    def speaking(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            if error.args:
                error.args = (in_python(str(error.args[0])), *error.args[1:])
            raise

    return speaking


def in_python(message: str) -> str:
    """An error message with Python's names of settings and functions.

    Messages quote commands: ``Run 'mxd index my-run'``. Those of other programs, and those of ``mxd`` that have no
    function, are for the shell and remain.
    """
    return _SHELL_OR_FLAG.sub(lambda match: _keyword(match) if match["flag"] else _call(match), message)


def _call(match: re.Match[str]) -> str:
    if match["program"] != "mxd":
        return match[0]
    name, words = match["command"], match["words"].split()
    if name not in mxd.__all__:
        return match[0] if not any(word.startswith("--") for word in words) else f"'mxd {name}'"
    arguments = []
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            arguments.append(_quoted(word))
            continue
        value = _quoted(words.pop(0)) if words and not words[0].startswith("--") else _VALUES.get(word[2:], "True")
        arguments.append(f"{word[2:].replace('-', '_')}={value}")
    return f"mxd.{name}({', '.join(arguments)})"


def _quoted(word: str) -> str:
    return word if word.startswith('"') else f'"{word}"'


def _keyword(match: re.Match[str]) -> str:
    name, value = match["flag"], match["value"] or match["number"]
    if value is None:
        value = _VALUES.get(name, "")
    elif not value.replace(".", "", 1).isdecimal():
        value = f'"{value}"'
    return value if "=" in value else f"{name.replace('-', '_')}={value}"
