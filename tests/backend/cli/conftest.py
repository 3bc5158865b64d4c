"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.language_models import saved_language_model
from tests.helpers.runs import small_world


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with text, a language model and a data folder."""
    small_world(tmp_path).database.dispose()
    saved_language_model(tmp_path / "lm")
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path
