"""``python -m benchmarks NAME``: run one benchmark."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.commands.bench import BENCHMARKS
from mxd.backend.cli.main import share_cores
from mxd.backend.cli.parser import complain, guarded, parse
from mxd.trainer.utils.display import suggest

PROGRAM = "python -m benchmarks"


def main(words: Sequence[str]) -> int:
    """Run the benchmark that ``words`` name and return its exit code."""
    name, *options = words or ["--help"]
    if name in BENCHMARKS:
        return guarded(lambda: parse(BENCHMARKS[name], options, f"{PROGRAM} {name}").run())
    if name in ("-h", "--help"):
        print(f"usage: {PROGRAM} NAME [options]\n\nbenchmarks: {', '.join(BENCHMARKS)}")
        return 0
    return complain(f"Unknown benchmark '{name}'.{suggest(name, BENCHMARKS)} Run '{PROGRAM} --help' for a list.")


if __name__ == "__main__":
    share_cores()  # as mxd does
    sys.exit(main(sys.argv[1:]))
