"""JSON schemas of result dataclasses that the API serves."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ConfigDict

T = TypeVar("T")


def documented(cls: type[T]) -> type[T]:
    """Publish the attribute docstrings of a dataclass as descriptions in its JSON schema."""
    setattr(cls, "__pydantic_config__", ConfigDict(use_attribute_docstrings=True))  # noqa: B010
    return cls
