"""A small indexed run, and ``mxd`` commands on it in processes that can be killed at any moment."""

import contextlib
import io
import os
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from mxd.backend.cli.main import run as run_command
from mxd.backend.database.engine import opened, reading
from mxd.backend.database.maintenance import check_database
from mxd.trainer.analysis.labelling.rules import label_experts
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.run import Run
from tests.helpers.processes import PROCESSES
from tests.helpers.runs import indexed_world

TIMEOUT_SECONDS = 120
SENTENCE_CHARACTERS = 1000


@dataclass(frozen=True)
class Place:
    """A data folder with the indexed run ``small``, its text and its language model."""

    folder: Path

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def text(self) -> str:
        """Text for training and indexing."""
        return str(self.folder / "text.jsonl")

    @property
    def database(self) -> str:
        """Database URL."""
        return sqlite_url(self.data)

    def findings(self) -> list[str]:
        """Problems that ``mxd database check`` reports."""
        with opened(self.database) as database, reading(database) as session:
            return list(check_database(session, 200))


def make_place(folder: Path) -> Place:
    """Train and index the run, and label its experts."""
    world = indexed_world(folder)
    label_experts(Run.load("small", world.data), world.database)
    world.database.dispose()
    return Place(folder)


@dataclass(frozen=True)
class Ended:
    """Result of a command."""

    code: int | None
    """Exit code; negative if a signal ended the process."""
    said: str
    """Contents of stderr."""
    seconds: float

    @property
    def is_good(self) -> bool:
        """True if the command worked or printed one clear error message."""
        last = (self.said.strip().splitlines() or [""])[-1]
        sentence = last.startswith("mxd: ") and len(last) < SENTENCE_CHARACTERS
        # 1: what was looked at is not in order; which is said on stdout.
        return "Traceback" not in self.said and (self.code in (0, 1) or (self.code == 2 and sentence))


def start(words: Sequence[str], place: Place, said: Path) -> ForkServerProcess:
    """Start an ``mxd`` command; its output goes into the file ``said``."""
    process = PROCESSES.Process(target=_command, args=(list(words), str(place.data), str(said)))
    process.start()
    return process


def to_its_end(words: Sequence[str], place: Place, limit_bytes: int | None = None, said: Path | None = None) -> Ended:
    """Run an ``mxd`` command to its end; ``limit_bytes`` limits the size of the files that it writes."""
    began = time.monotonic()
    said = said or Path(tempfile.gettempdir()) / f"mxd-faults-{os.getpid()}.txt"
    process = PROCESSES.Process(target=_command, args=(list(words), str(place.data), str(said), limit_bytes))
    process.start()
    process.join(TIMEOUT_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return Ended(None, f"{words[0]} did not end in {TIMEOUT_SECONDS} s", TIMEOUT_SECONDS)
    return Ended(process.exitcode, said.read_text("utf-8"), time.monotonic() - began)


def _command(words: list[str], data: str, said: str, limit_bytes: int | None = None) -> None:
    """Run the command line in the new process, with stderr redirected to a file."""
    os.environ["MXD_DATA"] = data
    with open(said, "w", encoding="utf-8", buffering=1) as kept:
        if limit_bytes is not None:
            _limit(limit_bytes)
        with contextlib.redirect_stderr(kept), contextlib.redirect_stdout(io.StringIO()):
            try:
                code = run_command(words)
            except BaseException:
                traceback.print_exc(file=kept)
                raise
    raise SystemExit(code)


def _limit(limit_bytes: int) -> None:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing then fails, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
