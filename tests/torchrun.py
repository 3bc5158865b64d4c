"""Several real processes on this machine that talk over gloo: by ``torchrun``, or started as it would start them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from tests.forked import Forked

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 240
HOST = "127.0.0.1"


def start(*words: str, processes: int = 2) -> Popen[str]:
    """Start ``python -m WORDS`` in several processes; use it with ``with``."""
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return Popen([*program, "-m", *words], stdout=PIPE, stderr=PIPE, text=True, env=environment, cwd=ROOT)


def ended(process: Popen[str]) -> CompletedProcess[str]:
    """Its exit code and what all of its processes printed."""
    try:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    return CompletedProcess(process.args, process.returncode, out, err)


def ranks(work: Callable[[], None], *words: str, processes: int = 2) -> list[CompletedProcess[str]]:
    """The same work in several processes, to the end of all: what each of them printed.

    They find each other by the variables that ``torchrun`` sets, in a store that outlives them, as under ``torchrun``.
    What else it does, seeing to the others when one ends, nobody does here.
    """
    meeting = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    shared = {"TORCHELASTIC_RUN_ID": "tests", "TORCHELASTIC_USE_AGENT_STORE": "True", "CUDA_VISIBLE_DEVICES": ""}
    shared |= {"MASTER_ADDR": HOST, "MASTER_PORT": str(meeting.port)}
    shared |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}

    def run(rank: int) -> CompletedProcess[str]:
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        with Forked(work, [work.__module__, *words], ROOT, {**os.environ, **shared, **own}) as process:
            out, err = process.communicate(PATIENCE_SECONDS)
            return CompletedProcess(words, process.wait(), out, err)

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(run, range(processes)))
