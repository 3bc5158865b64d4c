"""What all commands share: where the data are, JSON or words, a file of defaults. Nothing slow is imported here."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import get_subcommand

from backend.settings import Settings

T = TypeVar("T", bound=BaseModel)


class Command(BaseModel):
    """Base of all commands. Fields become flags, their docstrings the help."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())

    data: Path | None = None
    """Folder of the runs and the store; by default MXD_DATA, or data in the current folder."""
    store: str | None = None
    """SQLAlchemy URL of the store; by default MXD_STORE, or mxd.sqlite in the data folder."""
    config: Path | None = None
    """A .toml or .json file with settings of this command, or the name of a preset; flags go before it."""
    as_json: Annotated[bool, Field(alias="json")] = False
    """Print the result as one JSON document, and nothing else, on stdout."""

    @abstractmethod
    def run(self) -> int:
        """Do it. Returns the exit code.

        Raises:
            UserError: something that was given cannot be used.
        """

    def settings(self, **more: Any) -> Settings:
        """The server's settings: flags, then ``MXD_…`` variables, then defaults."""
        given = {"data": self.data, "store": self.store, **more}
        return Settings(**{name: value for name, value in given.items() if value is not None})

    def report(self, result: Mapping[str, Any] | list[Any], words: str) -> None:
        """Print a result, as JSON or in words."""
        print(json.dumps(_finite(result), ensure_ascii=False) if self.as_json else words)


class CommandGroup(BaseModel):
    """Base of commands that only gather others, each a ``CliSubCommand``."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    def run(self) -> int:
        """Run the one that was named. Returns its exit code."""
        command = get_subcommand(self, cli_exit_on_error=False)
        assert isinstance(command, Command)
        return command.run()


def _finite(value: Any) -> Any:
    """JSON has no NaN: what could not be measured is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def part_of(kind: type[T], command: BaseModel, **more: Any) -> T:
    """The settings of one kind among those of a command that offers all of them as flags."""
    shared = kind.model_fields.keys() & type(command).model_fields.keys() - more.keys()
    return kind(**{name: getattr(command, name) for name in shared}, **more)
