"""Settings given as keywords of Python functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard, TypeVar

from pydantic import BaseModel, ValidationError

from mxd.trainer.config import Config
from mxd.trainer.errors import UserError
from mxd.trainer.utils.suggestions import suggest

C = TypeVar("C", bound=Config)


def build(kind: type[C], values: Mapping[str, Any], keywords: Mapping[str, Any]) -> C:
    """Build a config of ``values`` and of ``keywords``, which may also name fields of the configs inside it.

    Raises:
        UserError: a keyword is no field, or a value is invalid.
    """
    nested: dict[str, Any] = dict(values)
    for name, value in keywords.items():
        path = next(_paths(kind, name, value), None)
        if path is None:
            raise UserError(f"Unknown setting: {name}.{suggest(name, field_names(kind))} See {kind.__name__}.")
        _put(nested, path, value)
    try:
        return kind.model_validate(nested)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or kind.__name__
        message = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise UserError(f"Invalid {where}: {first['input']!r:.80}. {message}.") from error


def field_names(kind: type[BaseModel]) -> Iterator[str]:
    """Yield the names of all fields of a config and of the configs inside it."""
    for name, field in kind.model_fields.items():
        yield name
        if _is_config(field.annotation):
            yield from field_names(field.annotation)


def _paths(kind: type[BaseModel], name: str, value: Any) -> Iterator[tuple[str, ...]]:
    """Places of a keyword. A config takes a config or a mapping; other values belong to its field of that name."""
    fields = kind.model_fields
    if name in fields and (isinstance(value, BaseModel | Mapping) or not _is_config(fields[name].annotation)):
        yield (name,)
    for outer, field in fields.items():
        if _is_config(field.annotation):
            yield from ((outer, *inner) for inner in _paths(field.annotation, name, value))


def _is_config(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        inner = values.get(name, {})
        values[name] = inner = inner.model_dump(exclude_unset=True) if isinstance(inner, BaseModel) else dict(inner)
        values = inner
    values[path[-1]] = value
