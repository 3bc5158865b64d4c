"""Processes: forked from a server that has imported everything once per worker, installed ones, and several at once.

Importing torch and transformers takes longer than almost everything that a test does in a process.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen, TimeoutExpired
from types import TracebackType
from typing import Self

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from mxd.backend.cli.main import main

ROOT = Path(__file__).parents[2]
MXD = Path(sys.executable).with_name("mxd")
TIMEOUT_SECONDS, SEVERAL_SECONDS = 60, 240
"""Longest waits for one process, and for several that communicate."""
ANY_PORT = ("--port", "0", "--device", "cpu")
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "tests.helpers.processes",
        "mxd.backend.cli.main",
        *(f"mxd.backend.cli.commands.{command}" for command in ("serve", "train", "index", "prompt")),
        "mxd.trainer.training.train",
        "mxd.trainer.training.plan",
        "mxd.trainer.data.activation_cache",
        "mxd.backend.api.app",
        "mxd.backend.plots.report",
        "mxd.trainer.evaluation.evaluate",
        "mxd.trainer.analysis.labelling.rules",
        "uvicorn",
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


@contextmanager
def started_processes(work: Callable[[], None], *words: str, processes: int = 2) -> Iterator[list[Forked]]:
    """Run a function in several processes.

    The processes find each other by the environment variables that ``torchrun`` sets. Unlike under ``torchrun``, the
    others continue when one fails.
    """
    meeting = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {"TORCHELASTIC_RUN_ID": "tests", "TORCHELASTIC_USE_AGENT_STORE": "True", "CUDA_VISIBLE_DEVICES": ""}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(meeting.port)}
    shared |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    with ExitStack() as running:
        each = [{**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]
        yield [running.enter_context(Forked(work, [work.__module__, *words], ROOT, of_one)) for of_one in each]


def run_processes(work: Callable[[], None], *words: str, processes: int = 2) -> list[CompletedProcess[str]]:
    """Run a function in several processes, as ``started_processes``, and return the output of each."""

    def finish(process: Forked) -> CompletedProcess[str]:
        out, err = process.communicate(SEVERAL_SECONDS)
        return CompletedProcess(words, process.wait(), out, err)

    with started_processes(work, *words, processes=processes) as started, ThreadPoolExecutor(processes) as pool:
        return list(pool.map(finish, started))
