"""Waits for the device while text is generated and indexed."""

from collections.abc import Callable
from pathlib import Path

import pytest

import mxd
from mxd.trainer.analysis.indexing import build
from tests.devices.plugin import TEXT
from tests.devices.plugin import mxd as mxd_command
from tests.devices.pretend_device import recording


def waits_of(work: Callable[[int], object], sizes: tuple[int, int]) -> dict[str, float]:
    """Waits per unit of work, from two amounts of it."""
    found = []
    for size in sizes:
        with recording() as waits:
            work(size)
        found.append(waits)
    return {place: count / (sizes[1] - sizes[0]) for place, count in (found[1] - found[0]).items()}


def test_waits_of_a_token(runs: Path) -> None:
    """A token of a steered text and of its baseline: six results are read; ids, edits and indices are written."""
    run = mxd.load("one", data=runs / "data")
    mxd.generate(run, "fox", {1: +2, 2: "ablate"}, max_tokens=2)
    waits = waits_of(lambda tokens: mxd.generate(run, "fox", {1: +2, 2: "ablate"}, max_tokens=tokens), (4, 8))
    read = sum(count for place, count in waits.items() if place.startswith(("tolist", "copy to the CPU")))
    assert (read, sum(waits.values())) == (6, 14), waits


def test_waits_of_an_index_batch(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids to the device; experts and activations back; transformers asks whether the sequences are packed."""
    # Batches are routed ahead in another thread, which would not be recorded.
    monkeypatch.setattr(build, "prefetch", lambda batches, _ahead: batches)
    monkeypatch.setattr(build, "TOKENS_PER_BATCH", 128)
    waits = waits_of(lambda batches: mxd_command(f"index seeded {TEXT} --tokens {batches * 128}"), (2, 4))
    assert sum(waits.values()) == 4, waits
