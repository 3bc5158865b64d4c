"""Real ``mxd`` processes: a command that runs to its end, one that can be interrupted, a server."""

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

ROOT = Path(__file__).parents[1]
MXD = Path(sys.executable).with_name("mxd")
PATIENCE_SECONDS = 60


def start(*words: str, folder: Path) -> Popen[str]:
    """An ``mxd`` command in ``folder`` that goes on while the test does; use it with ``with``."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return Popen([MXD, *words], stdout=PIPE, stderr=PIPE, text=True, cwd=folder, env=environment)


def ended(process: Popen[str]) -> CompletedProcess[str]:
    """Its exit code and what it printed that nobody has read yet, once it has ended."""
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
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
def server(data: Path, *flags: str, folder: Path = ROOT) -> Iterator[tuple[str, Popen[str]]]:
    """``mxd serve`` on a free port and the CPU, started in ``folder``: its address and its process."""
    with _serving("serve", "--data", str(data), *flags, folder=folder) as running:
        yield running


@contextmanager
def demo(data: Path, store: str) -> Iterator[tuple[str, Popen[str]]]:
    """``mxd demo`` on a sample, on a free port and the CPU: its address and its process."""
    with _serving("demo", "--data", str(data), "--store", store, folder=data) as running:
        yield running


@contextmanager
def _serving(*words: str, folder: Path) -> Iterator[tuple[str, Popen[str]]]:
    with start(*words, "--port", "0", "--device", "cpu", folder=folder) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("MxD Explorer is at http://127.0.0.1:"), process.communicate()[1]
            yield line.split()[4], process
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
