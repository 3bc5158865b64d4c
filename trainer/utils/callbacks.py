"""Progress reports and cancellation of long tasks, and tasks in steps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from mxd.trainer.errors import CancelledError

T = TypeVar("T")


@dataclass(frozen=True)
class Callbacks:
    """Functions that a long task calls between its steps. Whatever takes them raises CancelledError if the task is
    cancelled."""

    on_progress: Callable[[int, int, str], None] = lambda _done, _total, _note: None
    """Called with the units done, their total, and a short note such as the current loss."""
    is_cancelled: Callable[[], bool] = lambda: False
    """Return whether the task should end early."""

    def check_cancelled(
        self, message: str = "Cancelled; nothing was changed. Run the same command to start over."
    ) -> None:
        """Raise CancelledError with ``message`` if the task should end early."""
        if self.is_cancelled():
            raise CancelledError(message)


NO_CALLBACKS = Callbacks()
"""Default of the ``callbacks`` parameters: reports nothing, never cancels."""


@contextmanager
def terminal_bar(title: str, unit: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show the progress of a task as a bar, for a terminal."""
    from tqdm import tqdm

    bar: tqdm[NoReturn] | None = None

    def show(done: int, total: int, note: str) -> None:
        nonlocal bar
        if bar is None:
            bar = tqdm(total=total, initial=done, desc=title, unit=f" {unit}", unit_scale=True, dynamic_ncols=True)
        bar.set_postfix_str(note, refresh=False)
        bar.update(done - bar.n)

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()  # later output starts on a new line


Steps = Generator[tuple[int, int], None, T]
"""A task in steps, between which a server can serve other requests. It yields the units done and their total, first
when its arguments are checked and no unit is done, and returns its result."""


def completed(steps: Steps[T], callbacks: Callbacks, note: str = "") -> T:
    """Take all steps, and return their result. Raises CancelledError if the task is cancelled."""
    while True:
        callbacks.check_cancelled()
        try:
            done, total = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        callbacks.on_progress(done, total, note)
