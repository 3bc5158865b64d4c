"""JSON schemas of result dataclasses that the API serves."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ConfigDict

T = TypeVar("T")


def documented(cls: type[T]) -> type[T]:
    """Publish the attribute docstrings of a dataclass in its JSON schema, where fields with defaults always exist."""
    config = ConfigDict(use_attribute_docstrings=True, json_schema_serialization_defaults_required=True)
    setattr(cls, "__pydantic_config__", config)  # noqa: B010
    return cls
