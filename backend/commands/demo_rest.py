"""The sample's other runs, indexed while the first is looked at: in a process of its own, which leaves the processor to
the pages and ends with the server, however that ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Thread
from types import TracebackType

import psutil

from backend.commands.running import guarded
from backend.settings import Settings

POLITENESS = 10
"""Niceness: whoever types a prompt goes first."""
PATIENCE_SECONDS = 5.0


class Beside(AbstractContextManager["Beside"]):
    """The process; begun when the server answers, ended with it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    def after(self, when_ready: Callable[[str], None]) -> Callable[[str], None]:
        """The same, and then begin."""

        def then(url: str) -> None:
            when_ready(url)
            self.begin()

        return then

    def begin(self) -> None:
        """Start it."""
        words = [sys.executable, "-m", __name__]
        # A session of its own: Ctrl-C in the terminal is for the server, which ends this one.
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, text=True, start_new_session=True)
        assert self._process.stdin is not None
        # Kept open: where it closes, the server is gone.
        self._process.stdin.write(self._settings.model_dump_json() + "\n")
        self._process.stdin.flush()

    @property
    def exit_code(self) -> int | None:
        """Of the process, once it has ended."""
        return None if self._process is None else self._process.poll()

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Hang up, upon which it ends, and wait until it has."""
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def main() -> None:
    """In that process: its settings are the first line that it is given."""
    settings = Settings.model_validate_json(sys.stdin.readline())
    psutil.Process().nice(POLITENESS)
    Thread(target=_stop_with_the_server, daemon=True).start()
    sys.exit(guarded(lambda: _prepare(settings)))


def _prepare(settings: Settings) -> int:
    from backend.commands.demo import prepare

    prepare(settings)
    return 0


def _stop_with_the_server() -> None:
    """As a signal would have it, but without a word: nobody asked this process anything."""
    sys.stdin.read()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
