"""``mxd``: train, index, explore, steer, evaluate and serve. Commands are imported only when they are named."""

import os
import platform
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version

from mxd.backend.cli.registry import GROUPS, overview

SPINS = "20000"
"""Iterations that an idle OpenMP thread spins before it sleeps. The library's default is 300,000. If another program
uses a core, threads then spin while the one that they wait for has no core. Fewer spins than these slow down an idle
machine. See ``python -m benchmarks busy``."""
EXIT_SIGPIPE = 141
"""Exit code of a program that SIGPIPE ended, as shells report it."""


def main() -> None:
    """Run the command line of this process and exit."""
    share_cores()
    # Operations that PyTorch lacks on Apple's GPUs run on the CPU.
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    warnings.formatwarning = one_line_warning  # type: ignore[assignment]  # the name of an unused argument
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as head, closed the pipe. Python complains at exit unless the rest goes somewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_SIGPIPE
    sys.exit(code)


def one_line_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, _line: str | None = None
) -> str:
    """Format a warning like an error message; those that are not meant for users also name their place."""
    from mxd.trainer.errors import UsageWarning

    place = "" if issubclass(category, UsageWarning) else f"{filename}:{lineno}: {category.__name__}: "
    return f"mxd: warning: {place}{message}\n"


def share_cores() -> None:
    """Let PyTorch's idle threads sleep soon, unless the user has set how they wait. Call it before importing torch."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit code. Errors are printed as one line on stderr."""
    first, second = [*words, "", ""][:2]
    if first in ("", "-h", "--help") or (first in GROUPS and second in ("", "-h", "--help")):
        print(overview(first if first in GROUPS else ""))
        return 0
    if first in ("-V", "--version"):
        print(versions())
        return 0
    from mxd.backend.cli.parser import guarded, print_completion, run_command

    if first == "--completion":
        return guarded(lambda: print_completion(second))
    return run_command(words)


def versions() -> str:
    """Return the versions of this package and of the packages that results depend on."""
    others = ", ".join(f"{package} {version(package)}" for package in ("torch", "transformers"))
    return f"mxd-explorer {version('mxd-explorer')} (Python {platform.python_version()}, {others})"


if __name__ == "__main__":
    main()
