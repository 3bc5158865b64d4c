"""Parse the words of a command line, and config files, into commands; run them, with errors as one line on stderr.

argparse reads the words; every flag is generated from a field of a pydantic model, and pydantic validates the values.
"""

import json
import re
import shlex
import sys
import tomllib
from argparse import SUPPRESS, Action, ArgumentParser, RawDescriptionHelpFormatter, _SubParsersAction
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from types import UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import mxd.trainer.experimental  # registers its methods and settings  # noqa: F401
from mxd.backend.cli.base import POSITIONAL, Command, FlagsOf
from mxd.backend.cli.console import Interrupted, rank_and_processes
from mxd.backend.cli.registry import COMMANDS, GROUPS, PURPOSE, split_command
from mxd.trainer.config.base import parse_count
from mxd.trainer.errors import PeerLostError, SilentError, UserError, is_out_of_memory
from mxd.trainer.utils.display import listed, printable, suggest

TYPE_NAMES: Mapping[object, str] = {int: "INT", float: "FLOAT", Path: "PATH"}
"""Placeholders of values in help texts; all others are TEXT."""
LABELS = {"name": "RUN", "names": "RUN"}
"""Positional argument -> its label in help texts, where that is not its name."""


@dataclass(frozen=True)
class Option:
    """One flag or positional argument."""

    name: str
    """Flag without dashes, such as ``num-experts``."""
    help: str
    default: Any
    """Default value; None if there is none."""
    value: str
    """Placeholder of the value in the help, such as ``INT`` or ``{flat,two-level}``."""
    is_positional: bool
    is_switch: bool
    """A flag without a value."""
    is_list: bool
    """A flag that may be given several times, or several positional arguments."""
    is_split: bool
    """A list whose values may also be separated by commas."""
    is_required: bool

    @property
    def label(self) -> str:
        """The option as users write it: ``--num-experts`` or ``NAME``."""
        return LABELS.get(self.name, self.key.upper()) if self.is_positional else f"--{self.name}"

    @property
    def flags(self) -> list[str]:
        """Spellings in the help: ``--num-experts``; one letter may follow a single dash."""
        return [f"-{self.name}", f"--{self.name}"] if len(self.name) == 1 else [f"--{self.name}"]

    @property
    def key(self) -> str:
        """Name of the option in config files."""
        return self.name.replace("-", "_")

    def values(self, given: Any) -> Any:
        """Return ``given``, one value or a list of them, in the form that validation expects."""
        if not self.is_list or given is None:
            return given
        values = given if isinstance(given, list) else [given]
        if self.is_split:
            values = [part for value in values for part in (value.split(",") if isinstance(value, str) else [value])]
        return values


def options(model: type[BaseModel]) -> dict[str, Option]:
    """Return the options of a command by key, in the order of its fields."""
    return {option.key: option for option in _options(model, FlagsOf(model), {})}


def _options(model: type[BaseModel], flags: FlagsOf, defaults: Mapping[str, Any]) -> Iterator[Option]:
    for name, field in model.model_fields.items():
        if not flags.includes(name):
            continue
        inner = _inner(field, flags)
        if inner is None:
            yield _option(name, field, flags, defaults.get(name, field.default))
        else:
            default = field.default.model_dump() if isinstance(field.default, BaseModel) else {}
            yield from _options(inner.model, inner, default)


def _inner(field: FieldInfo, flags: FlagsOf) -> FlagsOf | None:
    """Return the flags that a field represents, or None if it is a flag itself."""
    marker = next((item for item in field.metadata if isinstance(item, FlagsOf)), None)
    if marker is None and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        return replace(flags, model=field.annotation, only=frozenset())
    return marker


def _option(name: str, field: FieldInfo, flags: FlagsOf, default: Any) -> Option:
    annotation = flags.types.get(name, field.annotation)
    value, is_list = _value(Annotated[annotation, *field.metadata] if field.metadata else annotation)
    several = name in flags.several
    return Option(
        name=(field.alias or name).replace("_", "-"),
        help=field.description or "",
        default=None if field.default_factory or default is PydanticUndefined else default,
        value=value,
        is_positional=POSITIONAL in field.metadata or name in flags.positional,
        is_switch=field.annotation is bool,
        is_list=is_list or several,
        # Free text may hold commas.
        is_split=several or (is_list and value != "TEXT"),
        is_required=default is PydanticUndefined and not field.default_factory and not flags.optional,
    )


def _value(annotation: Any) -> tuple[str, bool]:
    """Return the placeholder of an annotation's values, and whether it holds several."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *metadata = arguments
        is_count = any(isinstance(item, BeforeValidator) and item.func is parse_count for item in metadata)
        return ("COUNT", False) if is_count and inner is int else _value(inner)
    if origin is Literal:
        return "{" + ",".join(map(str, arguments)) + "}", False
    if origin in (list, tuple):
        return _value(arguments[0])[0], True
    if origin in (Union, UnionType):
        values = [_value(argument) for argument in arguments if argument is not type(None)]
        return "|".join(value for value, _ in values), any(is_list for _, is_list in values)
    return TYPE_NAMES.get(annotation, "TEXT"), False


def nest(model: type[BaseModel], given: Mapping[str, Any], flags: FlagsOf | None = None) -> dict[str, Any]:
    """Arrange values given by option key as ``model`` nests them. Keys that are no option of it are left out."""
    flags = flags or FlagsOf(model)
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        inner = _inner(field, flags) if flags.includes(name) else None
        if inner is not None and field.annotation is not inner.model:
            known = {option.key for option in _options(inner.model, inner, {})}
            values[key] = {name: value for name, value in given.items() if name in known}
        elif inner is not None:
            default = field.default.model_dump(exclude_unset=True) if isinstance(field.default, BaseModel) else {}
            values[key] = default | nest(inner.model, given, inner)
        elif flags.includes(name) and key in given:
            values[key] = given[key]
    return values


M = TypeVar("M", bound=BaseModel)
GLOBAL = ("data", "database", "json")
"""Options of every command, listed last in the help, with ``--config``."""
SHELLS = ("bash", "zsh", "fish")
MAX_SHOWN = 80
"""Characters of a rejected value that an error message repeats."""


class Parser(ArgumentParser):
    """An ``ArgumentParser`` that raises instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[0].upper()}{message[1:]}. Run '{self.prog} --help' for a list of options.")


def command_from(words: Sequence[str]) -> Command:
    """Return the command that the words of a command line describe."""
    name, rest = split_command(words)
    command = parse(command_class(name), rest, f"mxd {name}")
    command.given(words)
    return command


def parse(model: type[M], words: Sequence[str], prog: str) -> M:
    """Return an instance of ``model`` with the values given by ``words`` and by the config file they name."""
    known, parser = options(model), _parser(model, prog)
    namespace, unknown = parser.parse_known_args(words)
    if unknown:
        word, more = unknown[0], f"Run '{parser.prog} --help' for a list."
        if not word.startswith("-"):
            raise UserError(f"Unexpected argument '{word}'. Quote text with spaces. {more}")
        flag = word.partition("=")[0]
        names = [name.lstrip("-") for name in parser._option_string_actions]
        hint = suggest(flag.lstrip("-"), names).replace("'", "'--", 1)
        raise UserError(f"Unknown option '{flag}'.{hint} {more}")
    given = vars(namespace)
    file = given.pop("config", None) if issubclass(model, Command) else None
    values = {**(_read_config(file, known) if file else {}), **given}
    try:
        return model.model_validate(nest(model, {key: known[key].values(value) for key, value in values.items()}))
    except ValidationError as error:
        raise UserError(describe_validation_error(error, known, prog)) from error


def command_parser(name: str) -> ArgumentParser:
    return _parser(command_class(name), f"mxd {name}")


def _parser(model: type[BaseModel], prog: str) -> Parser:
    parser = Parser(prog, allow_abbrev=False, **_texts(model, prog))
    _add_options(parser, model)
    return parser


def validate(kind: type[M], values: Mapping[str, Any], command: type[Command], prog: str) -> M:
    """Return a config made of values that a command collected from its flags."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError(describe_validation_error(error, options(command), prog)) from error


def full_parser() -> ArgumentParser:
    """Return the parser of the whole command line, for shell completion and the reference page."""
    parser = ArgumentParser("mxd", description=PURPOSE)
    commands = parser.add_subparsers()
    groups = {
        name: commands.add_parser(name, help=summary, description=summary).add_subparsers()
        for name, summary in GROUPS.items()
    }
    for name, entry in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        model = command_class(name)
        texts = _texts(model, f"mxd {name}")
        _add_options((groups[group] if group else commands).add_parser(last, help=entry.summary, **texts), model)
    return parser


def print_completion(shell: str) -> int:
    """Print a script that completes commands, flags and their values in a shell, and return the exit code."""
    import shtab

    if shell not in SHELLS:
        raise UserError(f"No completion for the shell '{shell[:40]}'. Run: mxd --completion bash, zsh or fish")

    def actions(parser: ArgumentParser) -> Iterator[Action]:
        for action in parser._actions:
            if isinstance(action, _SubParsersAction):
                for command in action.choices.values():
                    yield from actions(command)
            else:
                yield action

    parser = full_parser()
    for action in actions(parser):
        metavar = str(action.metavar)
        if metavar.startswith("{"):
            action.choices = metavar[1 : metavar.index("}")].split(",")
        elif action.nargs != 0 and not action.choices:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell))
    return 0


def command_class(name: str) -> type[Command]:
    module = import_module(f"mxd.backend.cli.commands.{COMMANDS[name].module}")
    command: type[Command] = getattr(module, "".join(re.split("[ -]", name.title())) + "Command")
    return command


def describe_validation_error(
    error: ValidationError, known: Mapping[str, Option] | None = None, prog: str = "mxd"
) -> str:
    """Return one message: all missing options, or the first invalid one with its value."""
    missing = [_label(item["loc"], known) for item in error.errors() if item["type"] == "missing"]
    if missing:
        return f"Missing {listed(missing)}. Run '{prog} --help' for a description."
    first = error.errors()[0]
    reason = first["msg"].removeprefix("Value error, ").rstrip(".")
    label = _label(first["loc"], known)
    value = first["input"]
    if not label or not isinstance(value, str | int | float | None):
        return f"{label}: {reason}." if label else f"{reason}."
    shown = repr(value)
    shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"
    return f"Invalid {label}: {shown}. {reason}."


def _label(location: Sequence[int | str], known: Mapping[str, Option] | None) -> str:
    """Return the option that a pydantic location points at, or nothing for an error of the whole model."""
    names = [part for part in location if isinstance(part, str)]
    if known is None:
        return f"--{names[-1].replace('_', '-')}" if names else ""
    return next((known[name].label for name in reversed(names) if name in known), "")


def _texts(model: type[BaseModel], prog: str) -> dict[str, Any]:
    needed = []
    for option in options(model).values():
        if option.is_positional:
            word = f"{option.label} [{option.label} …]" if option.is_list else option.label
            needed.append(word if option.is_required else f"[{word}]")
        elif option.is_required:
            needed.append(f"{option.label} {option.value}")
    width = max(get_terminal_size().columns - 2, 40)
    description = "\n\n".join(fill(part, width) for part in cleandoc(model.__doc__ or "").split("\n\n"))
    examples = "\n".join(f"  {line}" for line in getattr(model, "examples", ()))
    return {
        "usage": " ".join([prog, *needed, "[options]"]),
        "description": description,
        "epilog": f"examples:\n{examples}" if examples else None,
        "formatter_class": RawDescriptionHelpFormatter,
    }


def _add_options(parser: ArgumentParser, model: type[BaseModel]) -> None:
    lines = (line.partition(":") for line in getattr(model, "groups", "").strip().splitlines())
    headings = {name: title.strip() for title, _, names in lines for name in names.split()}
    titles = dict.fromkeys([*headings.values(), "options", "global options"])
    parser._optionals.title = "global options"
    groups = {title: parser.add_argument_group(title) for title in titles if title != "global options"}
    # argparse lists its own group, which holds --help, first.
    parser._action_groups.remove(parser._optionals)
    parser._action_groups.append(parser._optionals)
    if issubclass(model, Command):
        help_text = "TOML or JSON file of options, or a preset."
        parser.add_argument("--config", metavar="PATH", default=SUPPRESS, help=help_text)
    for option in options(model).values():
        title = headings.get(option.name, "options")
        group = parser._optionals if option.name in GLOBAL else groups[title]
        _add_option(parser if option.is_positional else group, option)


def _add_option(parser: Any, option: Option) -> None:
    values = option.default if isinstance(option.default, tuple | list) else [option.default]
    shown = ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    if option.is_required:
        default = "" if option.is_positional else " (required)"
    elif "default" in option.help.lower() or option.default in (None, False, ()) or not shown:
        default = ""
    else:
        default = f" (default: {shown})"
    text = f"{option.help}{default}".replace("%", "%%")
    if option.is_positional:
        nargs = "+" if option.is_list else None if option.is_required else "?"
        metavar = option.value if option.value.startswith("{") else option.label
        parser.add_argument(option.key, metavar=metavar, nargs=nargs, default=SUPPRESS, help=text)
        return
    settings: dict[str, Any] = {"dest": option.key, "default": SUPPRESS, "action": "store_true"}
    if not option.is_switch:
        value = f"{option.value}[,…]" if option.is_split else option.value
        settings |= {"action": "append" if option.is_list else "store", "metavar": value}
    parser.add_argument(*option.flags, help=text, **settings)


def _read_config(named: str, known: Mapping[str, Option]) -> dict[str, Any]:
    """Read options from a file, or from a preset if no file has this name."""
    from mxd.trainer.config.presets import preset_file

    path = Path(named) if Path(named).is_file() else preset_file(named) or Path(named)
    try:
        content = path.read_text("utf-8")
        values = json.loads(content) if path.suffix == ".json" else tomllib.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"Cannot read the config file {path}: {error}. Run 'mxd train --presets' for a list of presets."
        ) from error
    if not isinstance(values, dict):
        raise UserError(f"Invalid config file {path}. It must contain option names and values.")
    given = {name.replace("-", "_"): value for name, value in values.items()}
    for key in given.keys() - known.keys():
        raise UserError(f"Unknown option '{key[:MAX_SHOWN]}' in {path}.{suggest(key, known)}")
    return given


# ---------------------------------------------------------------- running a command

BAD_INPUT = 2
OUT_OF_MEMORY = 3
OUT_OF_MEMORY_MESSAGE = (
    "Out of memory{}. Use smaller batches, buffers or texts, fewer experts, --dtype bfloat16, or another --device: "
    "auto-map spreads the language model over all devices."
)
INTERRUPTED = 130


def run_command(words: Sequence[str]) -> int:
    def work() -> int | None:
        command = command_from(words)
        _, processes = rank_and_processes()
        if processes > 1 and not command.shares_work:
            name, _ = split_command(words)
            raise UserError(
                f"'mxd {name}' needs a single process, but torchrun started {processes}. Run it without torchrun: "
                f"{shlex.join(['mxd', *words])}"
            )
        return command.run()

    return guarded(work)


def guarded(work: Callable[[], int | None]) -> int:
    """Call ``work`` and return its exit code. Errors that a user can fix become one line on stderr."""
    try:
        return work() or 0
    except SilentError:
        return BAD_INPUT
    except PeerLostError as error:  # names its process, and the one that failed
        return complain(str(error))
    except Interrupted as error:
        return complain(str(error), error.exit_code)
    except (ValidationError, UserError) as error:
        return _fail(describe_validation_error(error) if isinstance(error, ValidationError) else str(error))
    # No error while SQLAlchemy, which is slow to import, has not been used.
    except getattr(sys.modules.get("sqlalchemy.exc"), "DBAPIError", ()) as error:
        from mxd.trainer.storage.database.engine import database_error_message

        message = database_error_message(error)
        if message is None:
            raise
        return _fail(message)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        tried = re.search(r"tried to allocate ([\d.]+ \w+)", str(error), re.IGNORECASE)
        amount = f": {tried.group(1)} could not be allocated" if tried else ""
        return _fail(OUT_OF_MEMORY_MESSAGE.format(amount), OUT_OF_MEMORY)
    except KeyboardInterrupt:
        return _fail("Interrupted. Run the same command to start again.", INTERRUPTED)


def complain(message: str, code: int = BAD_INPUT) -> int:
    """Print an error message on one line and return ``code``."""
    print(f"mxd: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code


def _fail(message: str, code: int = BAD_INPUT) -> int:
    """Complain as ``complain``; of several processes only the first that fails does, and names itself."""
    rank, processes = rank_and_processes()
    if processes > 1:
        from mxd.trainer.utils.distributed import is_first_failure

        if not is_first_failure(message):
            return code
        message = f"Process {rank} of {processes}: {message}"
    return complain(message, code)
