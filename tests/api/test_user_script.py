"""A user's script runs as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.user_script import main
from tests.helpers.language_models import saved_language_model


def test_the_script_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(str(saved_language_model(tmp_path / "model")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "model"]
