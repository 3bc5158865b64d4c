"""Slow packages are imported only when needed, so that ``mxd --help`` answers quickly."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = ("numpy", "torch", "transformers", "fastapi", "starlette", "sqlalchemy", "sklearn", "scipy", "plotly", "pyarrow")
SLOW_TO_OVERLOOK = (*SLOW, "pydantic", "pydantic_settings", "asyncio", "mxd.backend.cli.commands.train")
SLOW_TO_SERVE = ("torch", "transformers", "sklearn", "scipy", "sympy", "plotly.graph_objs", "pyarrow", "datasets")
LOADED = "import sys; print(*sorted({*%r} & sys.modules.keys()))"


def loaded_by(code: str, slow: tuple[str, ...] = SLOW) -> str:
    """Return the slow packages that a fresh interpreter has loaded after ``code``."""
    words = [sys.executable, "-c", f"{code}\n{LOADED % (slow,)}"]
    finished = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()[-1]


def test_the_overview_is_printed_without_slow_packages() -> None:
    assert loaded_by("from mxd.backend.cli.main import run\nassert run(['--help']) == 0", SLOW_TO_OVERLOOK) == ""


@pytest.mark.parametrize("words", [["train", "--help"], ["serve", "--help"], ["train"]])
def test_the_command_line_is_read_without_slow_packages(words: list[str]) -> None:
    read = f"from mxd.backend.cli.main import run\ntry:\n    run({words!r})\nexcept SystemExit:\n    pass"
    assert loaded_by(read) == ""


def test_a_server_starts_without_packages_for_language_models() -> None:
    assert loaded_by("import uvicorn, mxd.backend.api.app", SLOW_TO_SERVE) == ""
