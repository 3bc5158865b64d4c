"""Several real processes that communicate over gloo, started by ``torchrun`` or in the same way."""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from tests.helpers.forking.forked import Forked

ROOT = Path(__file__).parents[3]
TIMEOUT_SECONDS = 240
HOST = "127.0.0.1"


def start(*words: str, processes: int = 2) -> Popen[str]:
    """Start ``python -m WORDS`` in several processes; a context manager."""
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return Popen([*program, "-m", *words], stdout=PIPE, stderr=PIPE, text=True, env=environment, cwd=ROOT)


def ended(process: Popen[str]) -> CompletedProcess[str]:
    try:
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        process.kill()
    return CompletedProcess(process.args, process.returncode, out, err)


@contextmanager
def started_processes(work: Callable[[], None], *words: str, processes: int = 2) -> Iterator[list[Forked]]:
    """Run a function in several processes.

    The processes find each other by the environment variables that ``torchrun`` sets. Unlike under ``torchrun``, the
    others continue when one fails.
    """
    meeting = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    shared = {"TORCHELASTIC_RUN_ID": "tests", "TORCHELASTIC_USE_AGENT_STORE": "True", "CUDA_VISIBLE_DEVICES": ""}
    shared |= {"MASTER_ADDR": HOST, "MASTER_PORT": str(meeting.port)}
    shared |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    with ExitStack() as running:
        yield [
            running.enter_context(
                Forked(
                    work,
                    [work.__module__, *words],
                    ROOT,
                    {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                )
            )
            for rank in range(processes)
        ]


def run_processes(work: Callable[[], None], *words: str, processes: int = 2) -> list[CompletedProcess[str]]:
    """Run a function in several processes, as ``started_processes``, and return the output of each."""

    def finish(process: Forked) -> CompletedProcess[str]:
        out, err = process.communicate(TIMEOUT_SECONDS)
        return CompletedProcess(words, process.wait(), out, err)

    with started_processes(work, *words, processes=processes) as started, ThreadPoolExecutor(processes) as pool:
        return list(pool.map(finish, started))
