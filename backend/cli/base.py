"""Base class of all commands and the markers that turn fields into flags. Nothing slow is imported here."""

from __future__ import annotations

import shlex
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr
from pydantic_core import to_json

from mxd.backend.cli.console import existing_database
from mxd.backend.settings import Settings
from mxd.trainer.config.training import DtypeChoice
from mxd.trainer.utils.display import printable

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from mxd.trainer.config.training import TextConfig
    from mxd.trainer.language_model.model import LanguageModel
    from mxd.trainer.storage.run import Run
    from mxd.trainer.utils.distributed import ProcessGroup

T = TypeVar("T")
POSITIONAL = "positional argument"
Positional = Annotated[T, POSITIONAL]
"""A field that is read from its position on the command line rather than from a flag."""


Several = Annotated[
    tuple[T, ...],
    BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,)),
    Field(min_length=1),
]
"""One or more values, separated by commas on the command line; in a config file also a single value."""


@dataclass(frozen=True)
class FlagsOf:
    """Marks a field whose flags are the fields of a config class, nested ones included. A field annotated as ``dict``
    receives the given flags by name, unvalidated and without defaults. A field annotated as the config class itself
    receives a validated config."""

    model: type[BaseModel]
    only: frozenset[str] = frozenset()
    """Fields offered as flags. All of them if empty."""
    without: frozenset[str] = frozenset()
    """Fields that are no flags."""
    positional: frozenset[str] = frozenset()
    """Fields read from their position."""
    several: frozenset[str] = frozenset()
    """Fields whose flag accepts several comma-separated values."""
    types: Mapping[str, Any] = field(default_factory=dict)
    """Field -> annotation that the help shows instead of its own."""
    optional: bool = False
    """No flag is required by the parser, because the command knows another source of the values."""

    def includes(self, name: str) -> bool:
        return name not in self.without and (not self.only or name in self.only)


class Command(BaseModel):
    """Base class of all commands. Fields become flags and their docstrings become the help."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())

    examples: ClassVar[tuple[str, ...]] = ()
    """Command lines shown below the help."""
    groups: ClassVar[str] = ""
    """Lines of a heading in the help, a colon, and the flags below it, without dashes. Others are below "options"."""
    shares_work: ClassVar[bool] = False
    """True if the processes that torchrun starts share the command's work."""

    data: Path | None = None
    """Folder of the runs and the database (default: MXD_DATA, or ./data)."""
    database: str | None = None
    """SQLAlchemy URL of the database (default: MXD_DATABASE, or mxd.sqlite in the data folder)."""
    as_json: Annotated[bool, Field(alias="json")] = False
    """Print the result as one JSON document on stdout."""

    _words: tuple[str, ...] = PrivateAttr(())
    """The words of the command line after ``mxd``."""
    _started: float = PrivateAttr(default_factory=time.monotonic)

    @abstractmethod
    def run(self) -> int | None:
        """Run the command and return its exit code; None for success."""

    def settings(self, **more: Any) -> Settings:
        """Return the settings: flags first, then ``MXD_…`` variables, then defaults."""
        given = {"data": self.data, "database": self.database, **more}
        return Settings(**{name: value for name, value in given.items() if value is not None})

    def load_runs(self, names: Iterable[str]) -> list[Run]:
        from mxd.trainer.storage.run import Run

        return [Run.load(name, self.settings().data) for name in names]

    def opened(self) -> AbstractContextManager[Engine]:
        """Open the database, which is created if it is missing, and close it on exit."""
        from mxd.backend.database.engine import opened

        return opened(self.settings().database_url)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open the database as ``opened`` does, and yield a session that sees one snapshot of it."""
        from mxd.backend.database.engine import reading

        with self.opened() as database, reading(database) as session:
            yield session

    @contextmanager
    def reading_existing(self) -> Iterator[Session]:
        """Yield such a session. Raises NotFoundError if there is no database."""
        from mxd.backend.database.engine import reading

        with existing_database(self.settings()) as database, reading(database) as session:
            yield session

    def report(self, result: Any, text: str) -> None:
        """Print ``text``, or ``result`` as JSON: plain data or a dataclass. NaN and infinities become null."""
        print(printable(to_json(result, inf_nan_mode="null").decode() if self.as_json else text))

    def report_measured(self, result: Any, text: str, runs: Iterable[Run], texts: Iterable[TextConfig] = ()) -> None:
        """Print as ``report``. The JSON of each result also has its ``provenance``, so that it can be repeated.
        ``result``: a dictionary, or a list of them. Values of a ``provenance`` that it has take precedence."""
        if self.as_json:
            from mxd.trainer.storage.run_sets import provenance

            now = {
                "command": shlex.join(["mxd", *self._words]),
                "seconds": round(time.monotonic() - self._started, 3),
                **provenance(runs, texts),
            }
            each = [
                {**one, "provenance": {**now, **one.get("provenance", {})}}
                for one in (result if isinstance(result, list) else [result])
            ]
            result = each if isinstance(result, list) else each[0]
        self.report(result, text)

    def given(self, words: Iterable[str]) -> None:
        self._words = tuple(words)


class ModelCommand(Command):
    """Base class of the commands that run a language model."""

    device: str = "auto"
    """Device of the language model: auto, cpu, cuda, xpu, mps, one of several such as cuda:1, or auto-map (over all
    GPUs, main memory and disk)."""
    dtype: DtypeChoice = "auto"
    """Data type of the language model. auto: bfloat16 on accelerators that have it natively, else float32. Final norm
    and logits are always computed in float32."""

    def load_language_model(self, source: str, group: ProcessGroup | None = None) -> LanguageModel:
        """Load a language model as ``--device`` and ``--dtype`` say; each process of a group on its own device."""
        from mxd.trainer.language_model.model import LanguageModel

        return LanguageModel.load(source, self.device if group is None else group.device(self.device), self.dtype)


class RunCommand(ModelCommand):
    """Base class of the commands on one run and its language model."""

    name: Positional[str]
    """Name or folder of the run."""

    def loaded(self) -> tuple[Run, LanguageModel]:
        (run,) = self.load_runs([self.name])
        return run, self.load_language_model(run.language_model_source)
