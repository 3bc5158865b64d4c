"""``mxd demo``: the bundled demo, indexed on first use, then served."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import psutil
from pydantic import Field

from mxd.backend.cli.base import Command, FlagsOf
from mxd.backend.cli.commands.index import index_run
from mxd.backend.cli.commands.label import label_run
from mxd.backend.cli.commands.serve import WhenReady, announce, listen, open_browser, serve
from mxd.backend.cli.runner import guarded
from mxd.backend.settings import Settings
from mxd.trainer.config import INSTALLED_SAMPLE, SAMPLE
from mxd.trainer.utils.memory import keep_freed_memory_in_threads

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.backend.export.sample_data import Sample
    from mxd.trainer.storage.run import Run

NICE_LEVEL = 10
"""Niceness of the background process, so that requests are served first."""
SHUTDOWN_TIMEOUT_S = 5.0


class DemoCommand(Command):
    """Serve the bundled demo.

    On first use, the first run is indexed, which takes about a minute. The other runs are indexed in the background
    while the server is running.
    """

    examples: ClassVar = (
        "mxd demo",
        "mxd demo --open --port 8080",
        "mxd demo --data my-demo --device cpu",
    )

    data: Path | None = None
    """Folder of a demo (default: the bundled one; an installed package copies it to your user data folder)."""
    database: str | None = None
    """SQLAlchemy URL of the database (default: a file next to the demo)."""
    flags: Annotated[dict[str, Any], FlagsOf(Settings, only=frozenset({"host", "port", "device"}))] = Field(
        default_factory=dict
    )
    open: bool = False
    """Open the dashboard in a browser."""

    def run(self) -> int:
        """Prepare what is missing, then serve."""
        keep_freed_memory_in_threads()
        settings = self.settings(**self.flags)
        from mxd.backend.export.sample_data import Sample

        folder = self.data or writable_demo()
        Sample.open(folder)
        if self.database is None:
            settings = settings.model_copy(update={"database": demo_database_url(folder)})
        settings = settings.model_copy(update={"data": folder})
        listen(settings.host, settings.port).close()
        unprepared = prepare_first(settings)
        when_ready = open_browser if self.open else announce
        with BackgroundIndexer(settings) as indexer:
            serve(settings, indexer.start_after(when_ready) if unprepared else when_ready)
        return 0


class BackgroundIndexer(AbstractContextManager["BackgroundIndexer"]):
    """A process that prepares the remaining runs of the demo while the server is running."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    def start_after(self, when_ready: WhenReady) -> WhenReady:
        """Return a callback that calls ``when_ready`` and then starts the process."""

        def start(url: str) -> None:
            when_ready(url)
            self.start()

        return start

    def start(self) -> None:
        """Start the process."""
        words = [sys.executable, "-m", __name__]
        # A new session, because Ctrl-C in the terminal is meant for the server, which stops this process.
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, text=True, start_new_session=True)
        assert self._process.stdin is not None
        # stdin stays open: the process exits when it is closed, even if the server is killed.
        self._process.stdin.write(self._settings.model_dump_json() + "\n")
        self._process.stdin.flush()

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process, or None while it runs or before it starts."""
        return None if self._process is None else self._process.poll()

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close stdin, which stops the process, and wait for it to exit."""
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=SHUTDOWN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def writable_demo() -> Path:
    """Return a demo folder with write access: that of a checkout, or a copy of a read-only one made on first use.

    Raises:
        UserError: the disk is too full for the copy.
    """
    if SAMPLE != INSTALLED_SAMPLE and all(os.access(folder, os.W_OK) for folder in (SAMPLE, SAMPLE.parent)):
        return SAMPLE
    from platformdirs import user_data_path

    from mxd.trainer.utils.files import atomic_directory

    copy = user_data_path("mxd-explorer") / f"demo-{_digest(SAMPLE)}"
    if not copy.is_dir():
        with atomic_directory(copy) as partial:
            shutil.copytree(SAMPLE, partial, dirs_exist_ok=True)
            for path in (partial, *partial.rglob("*")):
                path.chmod(path.stat().st_mode | stat.S_IWUSR)  # those of a read-only folder are copied too
    return copy


def demo_database_url(folder: Path) -> str:
    """Return the URL of a demo's database: one per version of the demo, because an index is useless without its run."""
    return f"sqlite:///{folder.parent / f'.demo-{_digest(folder)}.sqlite'}"


def prepare(settings: Settings) -> None:
    """Enter every run of the demo into the database with its stored results, and index those without an index.

    Raises:
        UserError: the demo is damaged.
        Interrupted: the task was cancelled.
    """
    with _opened_demo(settings) as (demo, database):
        for run in demo.runs:
            _prepare_run(run, demo, database, settings.device)


def prepare_first(settings: Settings) -> int:
    """Prepare only the run that is shown first. Returns the number of runs left to prepare.

    Raises:
        UserError: the demo is damaged.
        Interrupted: the task was cancelled.
    """
    from mxd.backend.export.sample_data import is_ready

    with _opened_demo(settings) as (demo, database):
        _prepare_run(demo.runs[0], demo, database, settings.device)
        return sum(not is_ready(run, database) for run in demo.runs[1:])


@contextmanager
def _opened_demo(settings: Settings) -> Iterator[tuple[Sample, Engine]]:
    from mxd.backend.database.engine import opened
    from mxd.backend.export.sample_data import Sample

    demo = Sample.open(settings.data)
    with opened(settings.database_url) as database:
        demo.enter(database)
        yield demo, database


def _prepare_run(run: Run, demo: Sample, database: Engine, device: str) -> None:
    from mxd.backend.export.sample_data import is_indexed, is_ready
    from mxd.trainer.utils.distributed import SINGLE_PROCESS

    if not is_indexed(run, database):
        index_run(run, demo.index, database, device, SINGLE_PROCESS)
    demo.enter_ablations(run, database)
    if not is_ready(run, database):
        demo.enter_written(run, database)
        label_run(run, database)


def _digest(folder: Path) -> str:
    """Return a digest of everything the demo's index depends on, including the database schema."""
    from mxd.backend.export.sample_data import INDEX_FILE
    from mxd.trainer.storage.database.migrations import CHAIN

    digest = hashlib.sha256(bytes([CHAIN.newest]))
    for pattern in (INDEX_FILE, "runs/*/run.json", "runs/*/layer.safetensors", "language-model/model.safetensors"):
        for path in sorted(folder.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def main() -> None:
    """Run the background process. Its settings are the first line of stdin."""
    settings = Settings.model_validate_json(sys.stdin.readline())
    psutil.Process().nice(NICE_LEVEL)
    Thread(target=_stop_with_the_server, daemon=True).start()
    sys.exit(guarded(lambda: _prepare_all(settings)))


def _prepare_all(settings: Settings) -> int:
    prepare(settings)
    return 0


def _stop_with_the_server() -> None:
    """Stop this process, without printing anything, when the server closes stdin."""
    sys.stdin.read()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
