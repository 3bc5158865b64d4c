"""Processes forked from a server that has imported everything once per test worker.

Importing torch and transformers takes longer than almost everything that a test does in a process.
"""

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
_COMMANDS = (
    "mxd.backend.cli.commands.serve",
    "mxd.backend.cli.commands.train",
    "mxd.backend.cli.commands.index",
    "mxd.backend.cli.commands.prompt",
)
_WANTED_LATER = (
    "mxd.trainer.training.train",
    "mxd.trainer.training.plan",
    "mxd.trainer.data.activation_cache",
    "mxd.backend.api.app",
    "mxd.backend.plots.report",
    "mxd.trainer.evaluation.evaluate",
    "mxd.trainer.analysis.labelling.rules",
    "uvicorn",
)
PROCESSES.set_forkserver_preload(
    [
        "tests.helpers.forking.forked",
        "mxd.backend.cli.main",
        *_COMMANDS,
        *_WANTED_LATER,
        "transformers.models.llama.modeling_llama",
    ]
)


class Forked:
    """A forked process, with the part of ``subprocess.Popen`` that tests use."""

    def __init__(
        self, work: Callable[[], None], args: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        """Call ``work`` with these command line arguments, in ``folder``, with exactly these environment variables."""
        self.args = args
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        with Connection(to_out, readable=False) as its_out, Connection(to_err, readable=False) as its_err:
            given = (work, list(args), str(folder), dict(environment), its_out, its_err)
            self._process = PROCESSES.Process(target=_begin, args=given)
            self._process.start()
        self.stdout, self.stderr = os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8")

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code."""
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutExpired(list(self.args), timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait, and return unread output. Raises like ``wait``."""
        with ThreadPoolExecutor(2) as pool:
            said = [pool.submit(stream.read) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except TimeoutExpired:
                self.kill()
                raise
        return said[0].result(), said[1].result()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
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
    """Run in the new process."""
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
