"""Bundles whose rows are small in the file and large in memory: opening one takes no more than a few rows at a time."""

from __future__ import annotations

import json
import resource
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from mxd.backend.export.bundles.unpack import ALWAYS_ALLOWED, LARGEST_LINE, unpack
from mxd.trainer.errors import UserError
from tests.helpers.forking.forked import PROCESSES
from tests.helpers.formats.bundles import Entries, write_bundle
from tests.helpers.fuzzing import CASES

EVALUATIONS = "database/evaluations.jsonl"
MOST_MB = 140
"""More than a sound bundle. Read together, the rows take 190 MB; one at a time, 90 MB."""


def _open(file: str, folder: str, connection: Connection) -> None:
    """Open a bundle; send the largest resident memory in MB, and the error message."""
    said = ""
    try:
        unpack(Path(file), Path(folder), None)
    except UserError as error:
        said = str(error)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    connection.send((peak, said))


def opened(file: Path, folder: Path) -> tuple[float, str]:
    """Open a bundle in a process of its own."""
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_open, args=(str(file), str(folder), theirs))
    process.start()
    result: tuple[float, str] = ours.recv()
    process.join()
    return result


def test_rows_that_expand_in_memory_are_read_a_few_at_a_time(bundle: Path, entries: Entries, tmp_path: Path) -> None:
    written = entries[EVALUATIONS].splitlines()[0]
    row = json.loads(written)
    filling = "[]," * ((LARGEST_LINE // 2 - len(written)) // 4)
    lines = []
    for number in range(int(0.3 * ALWAYS_ALLOWED / len(filling))):
        text = json.dumps(row | {"fingerprint": f"{number:032}", "result": row["result"] | {"later": None}})
        lines.append(text.replace('"later": null', f'"later": [{filling}1]'))
    file = write_bundle(tmp_path / "large.mxd", entries | {EVALUATIONS: "\n".join(lines).encode()})
    assert file.stat().st_size < 10 * bundle.stat().st_size
    usual, _ = opened(bundle, tmp_path / "usual")
    with CASES.timed():
        peak, said = opened(file, tmp_path / "large")
    assert peak - usual < MOST_MB, said
