"""Slow work on one key delays no other key, and one key is worked on once at a time."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest

from mxd.backend.caches import StampedCache
from mxd.backend.inference.run_loader import RunLoader

TIMEOUT_SECONDS = 30.0


def test_a_warm_read_does_not_wait_for_a_cold_build() -> None:
    cache, building, finish = StampedCache[str](), Event(), Event()
    cache.get("warm", 1, lambda: "warm")

    def build() -> str:
        building.set()
        assert finish.wait(TIMEOUT_SECONDS)
        return "cold"

    cold = Thread(target=cache.get, args=("cold", 1, build))
    cold.start()
    assert building.wait(TIMEOUT_SECONDS)
    assert cache.get("warm", 1, lambda: pytest.fail("it is cached")) == "warm"
    finish.set()
    cold.join(TIMEOUT_SECONDS)
    assert cache.get("cold", 1, lambda: pytest.fail("it is cached")) == "cold"
    assert not cache._turns


def test_a_run_that_is_removed_meanwhile_has_a_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = RunLoader(tmp_path, 1)
    missing = loader.fingerprint("gone")
    monkeypatch.setattr(Path, "exists", lambda _path: True)  # as if removed between a check and its use
    assert loader.fingerprint("gone") == missing
