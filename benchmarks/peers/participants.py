"""Participants of the comparison: one process each, which runs the work that it is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import ROOT, environment
from mxd.trainer.errors import UserError

SCRIPTS = Path(__file__).parent / "scripts"
OURS = "mxd"
PAPER = "paper"


@dataclass(frozen=True)
class Script:
    """Script of a participant, and the environment that it runs in."""

    file: str
    environment: str | None
    """None: the environment of this project."""


PARTICIPANTS: Mapping[str, Script] = {
    OURS: Script("ours.py", None),
    "transformers": Script("transformers_work.py", None),
    "nnsight": Script("nnsight_work.py", "nnsight"),
    "sae-lens": Script("sae_lens_work.py", "saelens"),
    "sparsify": Script("sparsify_work.py", "sparsify"),
    "delphi": Script("delphi_work.py", "delphi"),
    PAPER: Script("paper_work.py", "saelens"),
}


@dataclass(frozen=True)
class Answer:
    """Time that a piece of work took, and its result."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds of all threads."""
    result: Any


class Participant:
    """A running participant."""

    def __init__(
        self, name: str, folder: Path, environments: Path, threads: int, paper_code: Path | None = None
    ) -> None:
        """Start the process. Its inputs are in ``folder``; the peer ``paper`` runs the code in ``paper_code``."""
        script = PARTICIPANTS[name]
        python = sys.executable if script.environment is None else environment(script.environment, environments)
        variables = {"THREADS": str(threads), "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        # Its Triton kernels need a GPU; without Triton it uses torch's.
        variables |= {"SPARSIFY_DISABLE_TRITON": "1"}
        variables |= {"PAPER_CODE": str(paper_code)} if paper_code else {}
        self._process = subprocess.Popen(
            [str(python), str(SCRIPTS / script.file), str(folder)],
            cwd=folder,
            env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.name = name
        started = self._read()
        self.versions: Mapping[str, str] = started["versions"]
        self.works = frozenset[str](started["works"])

    def ask(self, work: str) -> Answer:
        """Run a piece of work."""
        assert self._process.stdin is not None
        print(work, file=self._process.stdin, flush=True)
        return Answer(**self._read())

    def stop(self) -> None:
        """End the process."""
        if self._process.returncode is None:
            self._process.communicate()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Some packages print while they are imported.
            if line.startswith("{"):
                return json.loads(line)
        self.stop()
        raise UserError(f"The script of {self.name} failed; its error is above. Omit it from --peers.")
