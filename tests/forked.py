"""Processes that begin with everything imported: forked from a server that imported it once for all tests of a worker.

Importing torch and transformers takes longer than nearly everything that a test asks of a process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import TimeoutExpired
from types import TracebackType
from typing import Self

PROCESSES = multiprocessing.get_context("forkserver")
_COMMANDS = ("backend.commands.serve", "backend.commands.train", "backend.commands.index", "backend.commands.steer")
_WANTED_LATER = ("backend.app", "backend.report", "trainer.evaluation.evaluate", "trainer.labelling", "uvicorn")
PROCESSES.set_forkserver_preload(
    ["tests.forked", "backend.cli", *_COMMANDS, *_WANTED_LATER, "transformers.models.llama.modeling_llama"]
)


class Forked:
    """One such process, with the part of ``subprocess.Popen`` that tests use."""

    def __init__(
        self, work: Callable[[], None], args: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        """Call ``work`` with these words on the command line, in ``folder``, with these variables and no others."""
        self.args = args
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        with Connection(to_out, readable=False) as its_out, Connection(to_err, readable=False) as its_err:
            given = (work, list(args), str(folder), dict(environment), its_out, its_err)
            self._process = PROCESSES.Process(target=_begin, args=given)
            self._process.start()
        self.stdout, self.stderr = os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8")

    @property
    def pid(self) -> int:
        """Its id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative where a signal ended it; None while it goes on."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended.

        Raises:
            TimeoutExpired: it has not ended within ``timeout`` seconds.
        """
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutExpired(list(self.args), timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it printed that nobody has read yet, once it has ended. Raises as ``wait``."""
        with ThreadPoolExecutor(2) as pool:
            said = [pool.submit(stream.read) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except TimeoutExpired:
                self.kill()
                raise
        return said[0].result(), said[1].result()

    def send_signal(self, number: int) -> None:
        """Send it a signal, where it has not ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stdout.close()
        self.stderr.close()
        self._process.join()


def _begin(
    work: Callable[[], None],
    words: list[str],
    folder: str,
    environment: dict[str, str],
    out: Connection,
    err: Connection,
) -> None:
    """In the new process."""
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    out.close()
    err.close()
    # Their own, not those of the server: that one's may hold what it has not printed yet.
    sys.stdout = os.fdopen(1, "w", 1, encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = list(words)
    work()
