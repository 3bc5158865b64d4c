"""Run a command and turn errors into one line on stderr and an exit code."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence

from pydantic import ValidationError

import mxd.trainer.experimental  # registers its methods and settings  # noqa: F401
from mxd.backend.cli.console import Interrupted, rank_and_processes
from mxd.backend.cli.parser import command_from, describe_validation_error
from mxd.backend.cli.registry import split_command
from mxd.trainer.errors import PeerLostError, SilentError, UserError, is_out_of_memory
from mxd.trainer.utils.display import printable

BAD_INPUT = 2
OUT_OF_MEMORY = 3
OUT_OF_MEMORY_MESSAGE = (
    "Out of memory{}. Use smaller batches, buffers or texts, fewer experts, --dtype bfloat16, or another --device: "
    "auto-map spreads the language model over all devices."
)
INTERRUPTED = 130


def run_command(words: Sequence[str]) -> int:
    """Run the command that ``words`` names and return its exit code."""

    def work() -> int:
        command = command_from(words)
        _, processes = rank_and_processes()
        if processes > 1 and not command.shares_work:
            name, _ = split_command(words)
            raise UserError(
                f"'mxd {name}' needs a single process, but torchrun started {processes}. Run it without torchrun: "
                f"{shlex.join(['mxd', *words])}"
            )
        return command.run()

    return guarded(work)


def guarded(work: Callable[[], int]) -> int:
    """Call ``work`` and return its exit code. Errors that a user can fix become one line on stderr."""
    try:
        return work()
    except SilentError:
        return BAD_INPUT
    except PeerLostError as error:  # names its process, and the one that failed
        return complain(str(error))
    except Interrupted as error:
        return complain(str(error), error.exit_code)
    except (ValidationError, UserError) as error:
        return _fail(describe_validation_error(error) if isinstance(error, ValidationError) else str(error))
    # No error while SQLAlchemy, which is slow to import, has not been used.
    except getattr(sys.modules.get("sqlalchemy.exc"), "DBAPIError", ()) as error:
        from mxd.trainer.storage.database.engine import database_error_message

        message = database_error_message(error)
        if message is None:
            raise
        return _fail(message)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        tried = re.search(r"tried to allocate ([\d.]+ \w+)", str(error), re.IGNORECASE)
        amount = f": {tried.group(1)} could not be allocated" if tried else ""
        return _fail(OUT_OF_MEMORY_MESSAGE.format(amount), OUT_OF_MEMORY)
    except KeyboardInterrupt:
        return _fail("Interrupted. Run the same command to start again.", INTERRUPTED)


def complain(message: str, code: int = BAD_INPUT) -> int:
    """Print an error message on one line and return ``code``."""
    print(f"mxd: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code


def _fail(message: str, code: int = BAD_INPUT) -> int:
    """Complain as ``complain``; of several processes only the first that fails does, and names itself."""
    rank, processes = rank_and_processes()
    if processes > 1:
        from mxd.trainer.utils.distributed import is_first_failure

        if not is_first_failure(message):
            return code
        message = f"Process {rank} of {processes}: {message}"
    return complain(message, code)
