"""The generation benchmark runs on a tiny language model."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.trainer import generate
from tests.helpers.runs import World, small_world
from tests.trainer.inference.test_steering import make_run


def test_every_variant_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "ROUTED_TOKENS", 40)
    world: World = small_world(tmp_path)
    found = generate.bench_generate(world.language_model, make_run(world), tokens=3, rounds=1)
    ratios = (found.routing_ratio, found.pair_speedup, found.batch_speedup, found.stream_overhead)
    assert all(ratio > 0 for ratio in ratios)
    assert found.tokens == 3
    world.database.dispose()
