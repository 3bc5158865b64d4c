"""Words of a command line, and files of settings, as commands. Only the commands that are asked for are imported."""

from __future__ import annotations

import json
import re
import tomllib
from argparse import Action, ArgumentParser
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, create_model
from pydantic_settings import (
    BaseSettings,
    CliApp,
    CliSettingsSource,
    CliSubCommand,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    get_subcommand,
)

from backend.commands.base import Command, CommandGroup
from backend.commands.catalogue import COMMANDS, PURPOSE
from trainer.errors import UserError


class CommandLine(BaseSettings):
    """Base of what is read from a command line: a field for each command that may stand there."""

    model_config = SettingsConfigDict(
        cli_prog_name="mxd",
        cli_kebab_case=True,
        cli_implicit_flags="toggle",
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_exit_on_error=False,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags and ``--config`` alone: a variable that happens to be called TRAIN is no business of ours."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


def command_from(words: Sequence[str]) -> Command | CommandGroup:
    """The command that the words stand for; the first is a name in ``COMMANDS``.

    Raises:
        SettingsError: the words are not what it takes.
        ValidationError: a value is not.
        UserError: the file that ``--config`` names cannot be read.
    """
    kind, defaults = _command_line([words[0]]), _defaults(words)
    command = get_subcommand(CliApp.run(kind, list(words), cli_settings_source=_source(kind), **defaults))
    assert isinstance(command, Command | CommandGroup)
    return command


def parser_of_everything() -> ArgumentParser:
    """The parser of the whole command line: for shells and documents, which read it without running anything."""
    parser: ArgumentParser = _source(_command_line(COMMANDS)).root_parser
    return parser


def problem_in(error: ValidationError) -> str:
    """The first thing that is wrong, with the flag that it is about."""
    first = error.errors()[0]
    names = [str(part) for part in first["loc"]]
    # What a command makes of its flags is checked under the same names, without the command's own before them.
    if names and names[0] in COMMANDS:
        names = names[2 if issubclass(_load(names[0]), CommandGroup) else 1 :]
    flag = f"--{names[0].replace('_', '-')}: " if names else ""
    return f"{flag}{first['msg'].removeprefix('Value error, ')}"


def _command_line(names: Iterable[str]) -> type[CommandLine]:
    fields: dict[str, Any] = {
        name.replace("-", "_"): (CliSubCommand[_load(name)], Field(alias=name, description=COMMANDS[name].summary))  # type: ignore[misc]
        for name in names
    }
    return create_model("CommandLine", __base__=CommandLine, __doc__=PURPOSE, **fields)


def _load(name: str) -> type[Command] | type[CommandGroup]:
    entry = COMMANDS[name]
    kind: type[Command] | type[CommandGroup] = getattr(import_module(f"backend.commands.{entry.module}"), entry.name)
    return kind


def _source(kind: type[CommandLine]) -> CliSettingsSource[Any]:
    return CliSettingsSource[Any](kind, add_argument_method=_add_argument)


def _add_argument(parser: ArgumentParser, *names: str, **settings: Any) -> Action:
    """Spell ``-k`` as ``--k`` too, several values as they are typed, and say nothing of what is no default."""
    spelled = {name.lstrip("-") for name in names}
    longer = [f"--{name}" for name in spelled if len(name) == 1 and "help" not in spelled]
    said = (settings.get("help") or "").removesuffix(" (default: None)")
    settings["help"] = re.sub(r"\(default: \('?([^',]+)'?,\)\)$", r"(default: \1)", said)
    if isinstance(settings.get("metavar"), str):
        settings["metavar"] = re.sub(r"^tuple\[(.+),\.\.\.\]$", r"\1[,...]", settings["metavar"])
    return parser.add_argument(*names, *longer, **settings)


def _settings_file(named: str) -> Path:
    """The file of this name, or the preset where there is no such file."""
    from trainer.presets import preset_file

    path = Path(named)
    return path if path.exists() else preset_file(named) or path


def _defaults(words: Sequence[str]) -> dict[str, Any]:
    """Settings from the file that ``--config`` names, for the command that is run."""
    named = [after for word, after in pairwise(words) if word == "--config"]
    named += [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    if not named:
        return {}
    path = _settings_file(named[-1])
    try:
        content = path.read_text("utf-8")
        values = json.loads(content) if path.suffix == ".json" else tomllib.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"The settings in {path} cannot be read ({error}); mxd presets lists those by name.") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold names and values.")
    return {words[0]: {name.replace("-", "_"): value for name, value in values.items()}}
