"""Freed memory stays in the heap; tested in a separate process."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, threading, torch
from mxd.trainer.utils.memory import keep_freed_memory, keep_freed_memory_in_threads
def make_tensors():
    for _ in range(12):  # until the heap has grown to its final size
        torch.ones(1 << 24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.ones(1 << 24)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
HERE = "assert keep_freed_memory(); make_tensors()"
IN_A_THREAD = """
assert keep_freed_memory_in_threads()
thread = threading.Thread(target=make_tensors)
thread.start()
thread.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is supported")
@pytest.mark.parametrize("where", [HERE, IN_A_THREAD])
def test_freed_memory_is_reused(where: str) -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM + where], capture_output=True, text=True, check=True)
    assert int(result.stdout) < 4096, "64 MiB of fresh pages each time would be 8 times 16,384"


RELEASED = """
import torch
from mxd.trainer.training.rates import resident_bytes
from mxd.trainer.utils.memory import keep_freed_memory, release_pages
keep_freed_memory()
tensor, after = torch.ones(1 << 24), torch.ones(1 << 10)
before = resident_bytes()
release_pages(tensor)
print((before - resident_bytes()) / tensor.nbytes)
assert after.all() and tensor[1 << 10 : -1 << 10].count_nonzero() == 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux returns pages")
def test_pages_are_returned_while_a_tensor_exists() -> None:
    result = subprocess.run([sys.executable, "-c", RELEASED], capture_output=True, text=True, check=True)
    assert float(result.stdout) > 0.9
