"""Base class of all settings, and types that several settings share."""

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Self, TypeGuard

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mxd.trainer.errors import UserError
from mxd.trainer.utils.display import suggest

RETIRED = {"gate": {"gate": "flat", "groups": None, "top_groups": None}, "privacy": None}
"""Settings of removed features in the files of earlier runs -> their value when the feature is off."""
UNREAD = ("next_token_weight",)
"""Settings of removed options in the files of earlier runs, which nothing reads once a run is trained."""
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_COUNT = re.compile(r"^(\d{1,16}(?:\.\d+)?)\s*([kmb]?)$", re.IGNORECASE)


def parse_count(value: object) -> object:
    """Parse ``20M``, ``1.5b`` or ``250k`` as a whole number; return anything else unchanged for pydantic to check."""
    match = _COUNT.match(value.strip()) if isinstance(value, str) else None
    return round(float(match[1]) * _SUFFIXES[match[2].lower()]) if match else value


def without_retired(values: Any) -> Any:
    """Leave out the settings of removed features that are off. Those that are on are unknown settings."""
    if not isinstance(values, Mapping):
        return values
    return {
        name: value
        for name, value in values.items()
        if name not in UNREAD and (name not in RETIRED or value != RETIRED[name])
    }


Size = Annotated[int, Field(gt=0, lt=2**28)]
"""Side of a weight matrix. Larger values overflow when sizes are multiplied."""
Count = Annotated[int, BeforeValidator(parse_count), Field(gt=0, lt=2**53)]
"""Positive whole number that may be written as 250k, 20M or 1B. Databases and JSON hold it exactly."""
_PACKAGE = find_spec("mxd_demo")
INSTALLED_SAMPLE = None if _PACKAGE is None else Path(str(_PACKAGE.origin)).parent / "data"
"""Folder of the package mxd-explorer-demo, if it is installed."""
_CHECKOUT = Path(__file__).resolve().parents[2] / "data" / "demo"
SAMPLE = _CHECKOUT if _CHECKOUT.is_dir() else INSTALLED_SAMPLE or _CHECKOUT
"""Read-only data folder of the demo. Its runs can be loaded by name from anywhere."""


class Config(BaseModel):
    """Base class of all settings: immutable, rejects unknown names, documented by attribute docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())

    @classmethod
    def from_keywords(cls, values: Mapping[str, Any], keywords: Mapping[str, Any]) -> Self:
        """Build a config of ``values`` and of ``keywords``, which may also name fields of the configs inside it. Raises
        UserError if a keyword is no field, or a value is invalid."""
        nested: dict[str, Any] = dict(values)
        for name, value in keywords.items():
            path = next(_paths(cls, name, value), None)
            if path is None:
                raise UserError(f"Unknown setting: {name}.{suggest(name, _field_names(cls))} See {cls.__name__}.")
            target = nested
            for outer in path[:-1]:
                inner = target.get(outer, {})
                inner = inner.model_dump(exclude_unset=True) if isinstance(inner, BaseModel) else dict(inner)
                target[outer] = target = inner
            target[path[-1]] = value
        try:
            return cls.model_validate(nested)
        except ValidationError as error:
            raise UserError(describe_invalid(error, cls.__name__)) from error


def describe_invalid(error: ValidationError, whole: str) -> str:
    """Return one message: the first invalid setting with its value. ``whole`` names what has no place of its own."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or whole
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    return f"Invalid {where}: {first['input']!r:.80}. {message}."


def _field_names(kind: type[BaseModel]) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        yield name
        if _is_config(field.annotation):
            yield from _field_names(field.annotation)


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


RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Name of a run, also the name of its folder and its key in the database."""
