"""Measure the time and CPU time from the start of ``mxd serve`` to its first page.

python scripts/first_page.py DATA [REPEATS]
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import psutil

MXD = Path(sys.executable).with_name("mxd")


def first_page(data: str, path: str) -> tuple[float, float]:
    """Start a new server. Returns seconds until it answers on ``path``, and the CPU seconds used until then."""
    started = time.perf_counter()
    with subprocess.Popen([MXD, "serve", "--data", data, "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = server.stdout.readline()
        address = re.search(r"http://\S+", said)
        assert address is not None, said
        urlopen(address[0] + path).read()
        seconds = time.perf_counter() - started
        used = psutil.Process(server.pid).cpu_times()
        server.terminate()
    return seconds, used.user + used.system


def main() -> None:
    """Print the minimum of several starts, for the page and for the list of runs that it requests."""
    data, times = sys.argv[1], int((*sys.argv[2:], "3")[0])
    for path in ("/", "/api/runs"):
        visits = [first_page(data, path) for _ in range(times)]
        seconds, used = (min(values) for values in zip(*visits, strict=True))
        print(f"{path}: {seconds:.2f} s, {used:.2f} s of CPU time, the least of {times}")


if __name__ == "__main__":
    main()
