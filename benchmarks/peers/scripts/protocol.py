"""Answers requests on standard input with the time that a piece of work took; needs only the standard library."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Literal

Work = Literal[
    "pair", "pair-texts", "pairs", "pairs-texts", "text", "routing", "index", "autoencoder", "transcoder", "mxd"
]


def serve(works: Mapping[str, Callable[[], object]], packages: tuple[str, ...]) -> None:
    """Run the work that each line names. Reply with wall and CPU seconds as JSON, until standard input ends.

    If a work returns a function, its result is that function's; the time it takes does not count.
    """
    # Packages print to standard output, which carries the replies.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    versions = {name: version(name) for name in packages}
    print(json.dumps({"versions": versions, "works": list(works)}), file=replies, flush=True)
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        result = works[line.strip()]()
        seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        result = result() if callable(result) else result
        print(json.dumps(seconds | {"result": result}), file=replies, flush=True)
