"""How long ``mxd serve`` takes to its first page, and how much CPU time: python scripts/first_page.py DATA [TIMES]."""

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
    """Seconds from the start of a new server to the answer on ``path``, and the CPU time that it took until then."""
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
    """Print the least of several starts, for the page itself and for the list of runs that it asks for."""
    data, times = sys.argv[1], int((*sys.argv[2:], "3")[0])
    for path in ("/", "/api/runs"):
        found = [first_page(data, path) for _ in range(times)]
        seconds, used = (min(values) for values in zip(*found, strict=True))
        print(f"{path}: {seconds:.2f} s, {used:.2f} s of CPU time, the least of {times}")


if __name__ == "__main__":
    main()
