"""Progress reports and cancellation of long tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mxd.trainer.errors import CancelledError


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
