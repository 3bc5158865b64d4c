"""A command line from its words to its exit code; whatever is wrong with it is said in one line on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from backend.commands.console import Interrupted
from backend.commands.parsing import command_from, problem_in
from trainer.errors import SilentError, UserError

BAD_INPUT = 2
INTERRUPTED = 130


def run_command(words: Sequence[str]) -> int:
    """Run a command; the first word is its name. Returns the exit code."""
    return guarded(lambda: command_from(words).run())


def guarded(work: Callable[[], int]) -> int:
    """Do something; what is wrong with it is said in one line. Returns the exit code."""
    try:
        return work()
    except ValidationError as error:
        return complain(problem_in(error))
    except SettingsError as error:
        return complain(str(error).removeprefix("error parsing CLI: ").removeprefix("Error: "))
    except SilentError:
        return BAD_INPUT
    except UserError as error:
        return complain(str(error))
    except Interrupted as asked:
        return complain(str(asked), asked.exit_code)
    except _of_database() as error:
        told = _trouble(error)
        if told is None:
            raise
        return complain(told)
    except KeyboardInterrupt:
        return complain("interrupted; run the same command to begin again.", INTERRUPTED)


def complain(sentence: str, code: int = BAD_INPUT) -> int:
    """Say what is wrong. Returns the exit code."""
    # On one line, whatever a name in it holds.
    print(f"mxd: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def _of_database() -> tuple[type[Exception], ...]:
    """The errors of databases; none where nobody has needed one, as its package is slow to import."""
    if "sqlalchemy" not in sys.modules:
        return ()
    from sqlalchemy.exc import DBAPIError

    return (DBAPIError,)


def _trouble(error: Any) -> str | None:
    from trainer.opening import trouble_with

    return trouble_with(error)
