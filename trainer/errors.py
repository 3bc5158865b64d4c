"""The errors that a user can cause and mend.

Everything here carries one sentence that says what to do. The command line prints it and exits with 2; the server
answers with the status. Anything else that is raised is a defect of ours and shows its traceback.
"""

from __future__ import annotations


class UserError(ValueError):
    """Bad input: the message is one sentence for the person who gave it."""


class NotFoundError(UserError):
    """Something that was named does not exist."""


class TooLongError(UserError):
    """A text has more tokens than the language model or the limits allow."""


class LostError(UserError):
    """Another process of the same piece of work has ended, so this one cannot go on."""


class DamagedStoreError(UserError):
    """What is in a store cannot be read."""

    def __init__(self) -> None:
        super().__init__(
            "The store is damaged; go back to a copy of it, or move it away and index again; mxd store check says more."
        )


class SilentError(UserError):
    """The same piece of work has failed in another process too, and that one tells why."""
