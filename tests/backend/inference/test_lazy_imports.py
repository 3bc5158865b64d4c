"""Delayed imports, by several threads together."""

from __future__ import annotations

import subprocess
import sys

from tests.helpers.processes import ROOT

FROM_BOTH_ENDS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Event
from mxd.backend.inference.run_loader import IMPORT_LOCK, import_compute_modules, preload_compute_modules
def tokenizer():
    with IMPORT_LOCK:
        from transformers import AutoTokenizer
def generation():
    import_compute_modules()
    from mxd.trainer.inference.generation import RowBatch
with ThreadPoolExecutor(3) as pool:
    works = [pool.submit(tokenizer), pool.submit(preload_compute_modules, 0.0, Event()), pool.submit(generation)]
for work in works:
    work.result()
"""


def test_concurrent_imports_from_different_modules() -> None:
    done = subprocess.run([sys.executable, "-c", FROM_BOTH_ENDS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
