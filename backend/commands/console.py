"""Progress on stderr, and stopping when asked to."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from trainer.errors import UserError

if TYPE_CHECKING:
    from tqdm import tqdm

    from trainer.distributed import Ranks

SECONDS_BETWEEN_LINES = 5.0


class ProgressBar:
    """A bar where stderr is a terminal."""

    def __init__(self, what: str, unit: str) -> None:
        self.what = what
        self.unit = unit
        self.bar: tqdm[NoReturn] | None = None

    def __call__(self, done: int, total: int, note: str) -> None:
        """Show how far it is."""
        from tqdm import tqdm

        if self.bar is None:
            self.bar = tqdm(
                total=total, initial=done, desc=self.what, unit=f" {self.unit}", unit_scale=True, dynamic_ncols=True
            )
        self.bar.set_postfix_str(note, refresh=False)
        self.bar.update(done - self.bar.n)

    def close(self) -> None:
        """Leave the bar as it is and go on below it."""
        if self.bar is not None:
            self.bar.close()


class ProgressLines:
    """A line every few seconds where stderr is a file or a pipe."""

    def __init__(self, what: str, unit: str) -> None:
        self.what = what
        self.unit = unit
        self.first: tuple[float, int] | None = None
        self.last = float("-inf")

    def __call__(self, done: int, total: int, note: str) -> None:
        """Say how far it is, if it has not been said just now."""
        now = time.monotonic()
        self.first = self.first or (now, done)
        if now - self.last < SECONDS_BETWEEN_LINES and done < total:
            return
        self.last = now
        rate = (done - self.first[1]) / max(now - self.first[0], 1e-9)
        speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        left = f", {speed} {self.unit}/s, {duration((total - done) / rate)} left" if rate > 0 and done < total else ""
        more = f", {note}" if note else ""
        print(f"{self.what}: {done:,} of {total:,} {self.unit}{left}{more}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is left open."""


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def progress(what: str, unit: str = "tokens") -> Iterator[ProgressBar | ProgressLines]:
    """Progress of one piece of work, in the way that fits where stderr goes."""
    shown = ProgressBar(what, unit) if sys.stderr.isatty() else ProgressLines(what, unit)
    try:
        yield shown
    finally:
        shown.close()


class NoProgress:
    """Of the processes that work together, one alone tells how far it is."""

    def __call__(self, done: int, total: int, note: str) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing is open."""


@contextmanager
def progress_of(ranks: Ranks, what: str) -> Iterator[ProgressBar | ProgressLines | NoProgress]:
    """Progress of work that several processes may share."""
    if ranks.is_first:
        with progress(what) as shown:
            yield shown
    else:
        yield NoProgress()


class Interrupted(Exception):
    """Work has ended early because somebody asked for it; the message says how to go on."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class StopRequest:
    """Becomes true at the first Ctrl-C or SIGTERM, so that work can save what it has; a second one ends it at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that a signal ended."""
        return 128 + (self.signal or signal.SIGINT)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        # Nothing is said where the signal came while something else was being written: it would be an error.
        with suppress(RuntimeError):
            print("\nStopping after this step; once more to stop at once.", file=sys.stderr, flush=True)

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Take signals while inside."""
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def stoppable() -> Iterator[StopRequest]:
    """Work that the first Ctrl-C or SIGTERM asks to stop, and that raises a sentence when it has.

    Raises:
        Interrupted: it was asked to stop, and has; with the sentence.
    """
    stop = StopRequest()
    with stop.listening():
        try:
            yield stop
        except UserError as error:
            if stop():
                raise Interrupted(str(error), stop.exit_code) from error
            raise
