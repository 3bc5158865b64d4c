"""``torchrun``: several real processes on this machine that talk over gloo."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 240


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


def torchrun(*words: str, processes: int = 2) -> CompletedProcess[str]:
    """The same, to its end."""
    with start(*words, processes=processes) as process:
        return ended(process)
