"""Errors that users can cause and fix.

Each carries a message for the user. The command line prints it and exits with 2; the server answers with a 4xx status
or 503. Any other exception is a bug and shows its traceback.
"""

import sys
from typing import TypeVar

KEEP_LABELS = (
    "Restore a backup. Without one, 'mxd database rescue NEW.sqlite' saves labels, notes, lists and sessions: "
    "replace the damaged file with it and index the runs again."
)
"""Advice for a damaged SQLite file."""
TESTED_VERSIONS = "Run 'mxd doctor', which lists the packages that are not of a tested version."
"""Advice for a library that lacks what this program uses."""


class UserError(ValueError):
    """Invalid input. The message says what is wrong and what to do.

    >>> try:
    ...     mxd.load("mi-run")
    ... except mxd.UserError as error:
    ...     print(error)
    Unknown run 'mi-run'. Did you mean 'my-run'? Run mxd.runs() for a list.
    """


class UsageWarning(UserWarning):
    """Valid input whose results may not be those that a user expects. The command line prints it on one line."""


class NotFoundError(UserError):
    """A named run, expert, file or repository does not exist."""


class TooLongError(UserError):
    """A text has more tokens than the model or a limit allows."""


class CancelledError(UserError):
    """The task was cancelled. The message says whether anything was saved."""


class LockedError(UserError):
    """Another process holds a lock."""


class WriterLostError(UserError):
    """The process that was writing an activation cache ended before the cache was complete."""


class PeerLostError(UserError):
    """Another process of the distributed job ended before the job was done."""


class DamagedDatabaseError(UserError):
    """The database holds values that cannot be decoded."""

    def __init__(self) -> None:
        super().__init__(f"The database is damaged. {KEEP_LABELS} 'mxd database check' has the details.")


class SilentError(UserError):
    """The distributed job failed, and another process reports the cause."""


_OUT_OF_MEMORY = ("out of memory", "out_of_", "alloc_failed", "not enough memory", "allocate memory")
"""Parts of the messages of plain RuntimeErrors that PyTorch raises if memory runs out: on the CPU, on MPS and XPU, and
in libraries such as cuBLAS. Nothing else marks these errors."""


def is_out_of_memory(error: BaseException) -> bool:
    """True if memory ran out, on the CPU or on another device."""
    torch = sys.modules.get("torch")  # slow to import, and without it only Python itself can run out of memory
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(part in str(error).lower() for part in _OUT_OF_MEMORY)


Kind = TypeVar("Kind", bound=type)


def check_overrides(kind: Kind) -> Kind:
    """Class decorator: check that every method marked with ``typing_extensions.override`` overrides one.

    A library that renames a method would otherwise never call ours.

    Raises:
        UserError: no base class has such a method.
    """
    for name, method in vars(kind).items():
        if getattr(method, "__override__", False) and not any(name in vars(base) for base in kind.__mro__[1:]):
            library = kind.__mro__[1].__module__.partition(".")[0]
            raise UserError(f"{kind.__mro__[1].__name__} of the installed {library} has no {name}. {TESTED_VERSIONS}")
    return kind
