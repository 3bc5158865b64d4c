"""Flags and positional arguments of a command, generated from the fields of its pydantic models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from mxd.backend.cli.base import POSITIONAL, FlagsOf
from mxd.trainer.config.base import parse_count

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


def nest(model: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arrange values given by option key as ``model`` nests them. Keys that are no option of it are left out."""
    return _nest(model, FlagsOf(model), given)


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


def _nest(model: type[BaseModel], flags: FlagsOf, given: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        inner = _inner(field, flags) if flags.includes(name) else None
        if inner is not None and field.annotation is not inner.model:
            known = {option.key for option in _options(inner.model, inner, {})}
            values[key] = {name: value for name, value in given.items() if name in known}
        elif inner is not None:
            default = field.default.model_dump(exclude_unset=True) if isinstance(field.default, BaseModel) else {}
            values[key] = default | _nest(inner.model, inner, given)
        elif flags.includes(name) and key in given:
            values[key] = given[key]
    return values
