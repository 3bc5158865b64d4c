"""Fixtures of the command line's tests, command lines of small runs, and their output."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mxd.backend.cli.main import run
from tests.helpers.runs import saved_language_model, small_world

Capture = pytest.CaptureFixture[str]


def train_words(*more: str) -> list[str]:
    """Return a command line that trains a run of 24 steps."""
    fixed = "train lm --layer 1 --dataset text.jsonl --tokens 1536 --num-experts 40 --k 4 --context-length 16"
    return [*fixed.split(), "--batch-tokens", "64", "--buffer-tokens", "512", "--log-every", "4", *more]


def output(capsys: Capture, *words: str) -> str:
    """Standard output of a command that succeeds."""
    capsys.readouterr()
    assert run(words) == 0
    return capsys.readouterr().out


def document(capsys: Capture, *words: str) -> Any:
    return json.loads(output(capsys, *words, "--json"))


def rejected(capsys: Capture, *words: str) -> str:
    """Error message of a command with a mistake."""
    assert run(words) == 2
    return capsys.readouterr().err


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with text, a language model and a data folder. Tests copy it."""
    folder = tmp_path_factory.mktemp("inputs")
    small_world(folder).database.dispose()
    saved_language_model(folder / "lm")
    return folder


@pytest.fixture(scope="session")
def trained_inputs(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the trained run ``small``."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copytree(inputs, folder, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(train_words("--name", "small", "--data", "data")) == 0
    return folder


@pytest.fixture
def workspace(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with text, a language model and a data folder."""
    return _working_copy(inputs, tmp_path, monkeypatch)


@pytest.fixture
def trained(trained_inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with the trained run ``small``."""
    return _working_copy(trained_inputs, tmp_path, monkeypatch)


def _working_copy(source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(source, folder, dirs_exist_ok=True)
    monkeypatch.setenv("MXD_DATA", str(folder / "data"))
    monkeypatch.chdir(folder)
    return folder
