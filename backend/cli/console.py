"""Progress on stderr, interruption by signals, and text tables."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from mxd.trainer.errors import CancelledError, NotFoundError
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks, terminal_bar

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.backend.settings import Settings
    from mxd.trainer.utils.distributed import ProcessGroup


T = TypeVar("T")
ShowProgress = Callable[[int, int, str], None]
LINE_INTERVAL_S = 5.0
"""Seconds between lines of progress."""


@contextmanager
def progress_lines(title: str, unit: str) -> Iterator[ShowProgress]:
    """Show the progress of a task as lines every few seconds, for a file or a pipe."""
    began: tuple[float, int] | None = None
    last = float("-inf")

    def show(done: int, total: int, note: str) -> None:
        nonlocal began, last
        now = time.monotonic()
        began = began or (now, done)
        if now - last < LINE_INTERVAL_S and done < total:
            return
        last = now
        rate = (done - began[1]) / max(now - began[0], 1e-9)
        speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        left = f", {speed} {unit}/s, {duration((total - done) / rate)} left" if rate > 0 and done < total else ""
        more = f", {note}" if note else ""
        print(f"{title}: {done:,} of {total:,} {unit}{left}{more}", file=sys.stderr, flush=True)

    yield show


def duration(seconds: float) -> str:
    """Format seconds as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def progress(title: str, unit: str = "tokens") -> AbstractContextManager[ShowProgress]:
    """Show the progress of a task: a bar on a terminal, otherwise lines."""
    return terminal_bar(title, unit) if sys.stderr.isatty() else progress_lines(title, unit)


def progress_of(group: ProcessGroup, title: str) -> AbstractContextManager[ShowProgress]:
    """Show the progress of a task that several processes share, from the main process only."""
    return progress(title) if group.is_main else nullcontext(NO_CALLBACKS.on_progress)


def rank_and_processes() -> tuple[int, int]:
    """Rank of this process and number of processes that torchrun started; 0 and 1 without torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Interrupted(Exception):
    """The task was interrupted; the message says how to continue."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StopRequest:
    """Becomes true at the first Ctrl-C or SIGTERM, so that a task can save its state. The second signal raises."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """Exit code of a program that a signal ended, as shells expect it."""
        return 128 + (self.signal or signal.SIGINT)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        if rank_and_processes()[0] > 0:
            return
        # Printing fails if the signal arrives while stderr is being written to.
        with suppress(RuntimeError):
            print("\nStopping after this step. Press Ctrl-C again to stop immediately.", file=sys.stderr, flush=True)

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        previous = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextmanager
def stoppable() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C or SIGTERM into a request to cancel."""
    stop = StopRequest()
    with stop.listening():
        try:
            yield stop
        except CancelledError as error:
            raise Interrupted(str(error), stop.exit_code) from error


@contextmanager
def task(title: str, unit: str = "tokens") -> Iterator[Callbacks]:
    """Callbacks of one task: progress on stderr, cancelled by Ctrl-C or SIGTERM."""
    with stoppable() as stop, progress(title, unit) as bar:
        yield Callbacks(bar, stop)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> list[str]:
    """Return the lines of a table. The first ``text_columns`` are left-aligned, the others right-aligned."""
    table = [header, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if column < text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def table(items: Iterable[T], shown: Sequence[tuple[str, Callable[[T], str]]], text_columns: int = 1) -> list[str]:
    """Return the lines of a table with a row per item. ``shown``: title of a column, and its text for an item."""
    return columns([title for title, _ in shown], [[cell(item) for _, cell in shown] for item in items], text_columns)


def write_output(path: Path, content: str) -> None:
    """Write a file atomically, with the folders above it."""
    from mxd.trainer.utils.files import atomic_write, disk_errors

    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, content)


def existing_database(settings: Settings) -> AbstractContextManager[Engine]:
    """Open the database of the settings; a missing one is not created."""
    from mxd.backend.database.engine import opened

    return opened(existing_url(settings))


def existing_url(settings: Settings) -> str:
    """Return the URL of the settings' database. Raises NotFoundError if it is a file that does not exist."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(settings.database_url)
    except ArgumentError:
        url = None  # opening it reports the error
    if url is not None and url.get_backend_name() == "sqlite" and url.database and not Path(url.database).is_file():
        raise NotFoundError(
            f"No database at {url.database}. Train and index a run first, or choose another folder with --data."
        )
    return settings.database_url
