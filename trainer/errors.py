"""Errors that users can cause and fix.

Each carries a message for the user. The command line prints it and exits with 2; the server answers with a 4xx status
or 503. Any other exception is a bug and shows its traceback.
"""

from __future__ import annotations


class UserError(ValueError):
    """Invalid input. The message says what is wrong and what to do."""


class NotFoundError(UserError):
    """A named run, expert, file or repository does not exist."""


class TooLongError(UserError):
    """A text has more tokens than the model or a limit allows."""


class CancelledError(UserError):
    """The task was cancelled. The message says whether anything was saved."""


class PeerLostError(UserError):
    """Another process of the distributed job ended before the job was done."""


class DamagedDatabaseError(UserError):
    """The database holds values that cannot be decoded."""

    def __init__(self) -> None:
        super().__init__(
            "The database is damaged. Restore a backup, or move the file away and index again. "
            "Run mxd database check for details."
        )


class SilentError(UserError):
    """The distributed job failed, and another process reports the cause."""
