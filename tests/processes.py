"""``mxd`` in processes of its own: a command that runs to its end, one that can be interrupted, a server."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from typing import Any

from backend.cli import main
from tests.forked import Forked

ROOT = Path(__file__).parents[1]
MXD = Path(sys.executable).with_name("mxd")
PATIENCE_SECONDS = 60
ANY_PORT = ("--port", "0", "--device", "cpu")
Process = Forked | Popen[str]


def start(*words: str, folder: Path) -> Forked:
    """An ``mxd`` command in ``folder`` that goes on while the test does; use it with ``with``."""
    return Forked(main, ["mxd", *words], folder, os.environ)


def installed(*words: str, folder: Path) -> Popen[str]:
    """The same by the program that is installed, as a person starts it: a new interpreter that imports everything."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return Popen([MXD, *words], stdout=PIPE, stderr=PIPE, text=True, cwd=folder, env=environment)


def ended(process: Process) -> CompletedProcess[str]:
    """Its exit code and what it printed that nobody has read yet, once it has ended."""
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode is not None
    return CompletedProcess(process.args, process.returncode, out, err)


def mxd(*words: str, folder: Path) -> CompletedProcess[str]:
    """An ``mxd`` command in ``folder``, to its end."""
    with start(*words, folder=folder) as process:
        return ended(process)


def document(finished: CompletedProcess[str]) -> Any:
    """The one JSON document that a command printed."""
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@contextmanager
def server(data: Path, *flags: str, folder: Path = ROOT) -> Iterator[tuple[str, Forked]]:
    """``mxd serve`` on a free port and the CPU, started in ``folder``: its address and its process."""
    words = ("serve", "--data", str(data), *flags, *ANY_PORT)
    with start(*words, folder=folder) as process, _serving(process) as url:
        yield url, process


@contextmanager
def demo(data: Path, store: str) -> Iterator[tuple[str, Popen[str]]]:
    """The installed ``mxd demo`` on a sample, on a free port and the CPU: its address and its process."""
    words = ("demo", "--data", str(data), "--store", store, *ANY_PORT)
    with installed(*words, folder=data) as process, _serving(process) as url:
        yield url, process


@contextmanager
def _serving(process: Process) -> Iterator[str]:
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("MxD Explorer is at http://127.0.0.1:"), process.communicate()[1]
        yield line.split()[4]
    finally:
        process.kill()


def wait_for(happened: Callable[[], object]) -> None:
    """Wait for what another process does.

    Raises:
        TimeoutError: it has not happened in a minute.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)
