"""What takes seconds to import: asked for by several threads at once, and left alone by the collector afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys
from threading import Event

from backend.importing import import_ahead
from tests.processes import ROOT

FROM_BOTH_ENDS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Event
from backend.importing import ALONE, import_ahead, import_what_computes
def tokenizer():
    with ALONE:
        from transformers import AutoTokenizer
def generation():
    import_what_computes()
    from trainer.generation import RowBatch
with ThreadPoolExecutor(3) as pool:
    works = [pool.submit(tokenizer), pool.submit(import_ahead, 0.0, Event()), pool.submit(generation)]
for work in works:
    work.result()
"""


def test_threads_that_need_different_parts_at_once_all_get_them() -> None:
    done = subprocess.run([sys.executable, "-c", FROM_BOTH_ENDS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_has_been_imported_is_not_looked_through_again() -> None:
    gc.unfreeze()
    import_ahead(0.0, Event())
    assert gc.get_freeze_count() > 100_000
    gc.unfreeze()


def test_who_stops_meanwhile_does_not_wait() -> None:
    stop = Event()
    stop.set()
    import_ahead(60.0, stop)
    assert gc.get_freeze_count() == 0
