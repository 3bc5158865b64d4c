"""Memory that is freed is kept, in a process of its own so that no other test is touched."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from trainer.heap import keep_freed_memory
assert keep_freed_memory()
for _ in range(12):  # until the heap has room for its own leftovers
    torch.ones(1 << 24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    torch.ones(1 << 24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is changed")
def test_a_large_tensor_is_put_where_the_one_before_was() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(said.stdout) < 4096, "64 MiB of fresh pages each time would be 8 times 16,384"
