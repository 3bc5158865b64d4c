"""A small run with its index, and ``mxd`` commands on it in processes that can be killed at any moment."""

from __future__ import annotations

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

from backend.cli import run as run_command
from backend.database import opened, reading
from backend.upkeep.check import check_store
from tests.forked import PROCESSES
from tests.language_models import saved_language_model
from tests.runs import small_world
from trainer.config import IndexConfig
from trainer.indexing import build_index
from trainer.labelling import label_experts
from trainer.language_model import LanguageModel
from trainer.run import Run
from trainer.store import sqlite_url
from trainer.train import train

PATIENCE_SECONDS = 120
SENTENCE_CHARACTERS = 1000


@dataclass(frozen=True)
class Place:
    """A data folder with the fitted and indexed run ``small``, its text, and its language model."""

    folder: Path

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def text(self) -> str:
        """The text that it is fitted on and indexed with."""
        return str(self.folder / "text.jsonl")

    @property
    def store(self) -> str:
        """URL of its store."""
        return sqlite_url(self.data)

    def findings(self) -> list[str]:
        """What ``mxd store check`` finds wrong."""
        with opened(self.store) as store, reading(store) as session:
            return list(check_store(session, 200))


def make_place(folder: Path) -> Place:
    """Fit and index the run, and label its experts."""
    world = small_world(folder)
    source = str(saved_language_model(folder / "language-model"))
    language_model = LanguageModel.load(source, "cpu")
    train(world.config(language_model=source), world.data, world.store, language_model)
    run = Run.load("small", world.data)
    build_index(run, IndexConfig(text=world.text, tokens=2_000), language_model, world.store)
    label_experts(run, world.store)
    world.store.dispose()
    return Place(folder)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int | None
    """Exit code; negative where a signal ended it."""
    said: str
    """On stderr."""
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether it did what it was asked, or said in one sentence what to do."""
        last = (self.said.strip().splitlines() or [""])[-1]
        sentence = last.startswith("mxd: ") and len(last) < SENTENCE_CHARACTERS
        # 1: what was looked at is not in order; which is said on stdout.
        return "Traceback" not in self.said and (self.code in (0, 1) or (self.code == 2 and sentence))


def start(words: Sequence[str], place: Place, said: Path) -> ForkServerProcess:
    """An ``mxd`` command that goes on; what it says goes into the file ``said``."""
    process = PROCESSES.Process(target=_command, args=(list(words), str(place.data), str(said)))
    process.start()
    return process


def to_its_end(words: Sequence[str], place: Place, limit_bytes: int | None = None, said: Path | None = None) -> Ended:
    """An ``mxd`` command, to its end; with ``limit_bytes`` no file may grow beyond that."""
    began = time.monotonic()
    said = said or Path(tempfile.gettempdir()) / f"mxd-faults-{os.getpid()}.txt"
    process = PROCESSES.Process(target=_command, args=(list(words), str(place.data), str(said), limit_bytes))
    process.start()
    process.join(PATIENCE_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return Ended(None, f"{words[0]} did not end in {PATIENCE_SECONDS} s", PATIENCE_SECONDS)
    return Ended(process.exitcode, said.read_text("utf-8"), time.monotonic() - began)


def _command(words: list[str], data: str, said: str, limit_bytes: int | None = None) -> None:
    """In the new process: the command line, its words on stderr kept."""
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
