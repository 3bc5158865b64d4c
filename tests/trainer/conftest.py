"""Fixtures of the trainer's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.runs import World, small_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A small world of its own."""
    made = small_world(tmp_path)
    yield made
    made.database.dispose()
