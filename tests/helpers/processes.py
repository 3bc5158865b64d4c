"""``mxd`` processes: a command that runs to its end, one that can be interrupted, a server."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from typing import Any

from mxd.backend.cli.main import main
from tests.helpers.forking.forked import Forked

ROOT = Path(__file__).parents[2]
MXD = Path(sys.executable).with_name("mxd")
TIMEOUT_SECONDS = 60
ANY_PORT = ("--port", "0", "--device", "cpu")
Process = Forked | Popen[str]


def start(*words: str, folder: Path) -> Forked:
    """Start an ``mxd`` command in ``folder``; a context manager."""
    return Forked(main, ["mxd", *words], folder, os.environ)


def installed(*words: str, folder: Path) -> Popen[str]:
    """Start the installed program in a new interpreter; a context manager."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return Popen([MXD, *words], stdout=PIPE, stderr=PIPE, text=True, cwd=folder, env=environment)


def ended(process: Process) -> CompletedProcess[str]:
    """Wait, and return exit code and unread output."""
    out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode is not None
    return CompletedProcess(process.args, process.returncode, out, err)


def mxd(*words: str, folder: Path) -> CompletedProcess[str]:
    with start(*words, folder=folder) as process:
        return ended(process)


def document(finished: CompletedProcess[str]) -> Any:
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@contextmanager
def server(data: Path, *flags: str, folder: Path = ROOT) -> Iterator[tuple[str, Forked]]:
    """Start ``mxd serve`` on a free port and the CPU in ``folder``. Yields its address and process."""
    words = ("serve", "--data", str(data), *flags, *ANY_PORT)
    with start(*words, folder=folder) as process, _serving(process) as url:
        yield url, process


@contextmanager
def demo(data: Path) -> Iterator[tuple[str, Popen[str]]]:
    """Start the installed ``mxd demo`` on a free port and the CPU. Yields its address and process."""
    words = ("demo", "--data", str(data), *ANY_PORT)
    with installed(*words, folder=data) as process, _serving(process) as url:
        yield url, process


@contextmanager
def _serving(process: Process) -> Iterator[str]:
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        # Without a line the server has ended; only then does reading the rest return.
        assert line.startswith("MxD Explorer is running at http://127.0.0.1:"), line or process.communicate()[1]
        yield line.split()[5]
    finally:
        process.kill()


def wait_for(happened: Callable[[], object]) -> None:
    """Wait until a condition of another process holds."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)
