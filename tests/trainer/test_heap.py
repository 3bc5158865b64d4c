"""Memory that is freed is kept, in a process of its own so that no other test is touched."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, threading, torch
from trainer import heap
def make_tensors():
    for _ in range(12):  # until the heap has room for its own leftovers
        torch.ones(1 << 24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.ones(1 << 24)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
HERE = "assert heap.keep_freed_memory(); make_tensors()"
IN_A_THREAD = """
assert heap.keep_memory_freed_in_threads()
thread = threading.Thread(target=make_tensors)
thread.start()
thread.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is changed")
@pytest.mark.parametrize("where", [HERE, IN_A_THREAD])
def test_a_large_tensor_is_put_where_the_one_before_was(where: str) -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM + where], capture_output=True, text=True, check=True)
    assert int(said.stdout) < 4096, "64 MiB of fresh pages each time would be 8 times 16,384"
