"""Delayed imports: by several threads together, and frozen for the garbage collector afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys
from threading import Event

from mxd.backend.inference.run_loader import preload_compute_modules
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


def test_imported_objects_are_frozen_for_the_collector() -> None:
    gc.unfreeze()
    preload_compute_modules(0.0, Event())
    assert gc.get_freeze_count() > 100_000
    gc.unfreeze()


def test_stopping_ends_the_delay() -> None:
    stop = Event()
    stop.set()
    preload_compute_modules(60.0, stop)
    assert gc.get_freeze_count() == 0
