"""The measurement itself: every gate on every size, and what cells find."""

from __future__ import annotations

import pytest

from tests.runs import World
from trainer.bench.gates import GateBenchSizes, bench_gates, found_of_run
from trainer.run import Run
from trainer.train import train


def test_every_gate_on_every_size() -> None:
    sizes = GateBenchSizes(widths=[8], num_experts=[60, 120], k=4, batches=[1, 8], wanted=0.9, rounds=1)
    found = bench_gates(sizes, "cpu")
    assert [(it.width, it.num_experts, it.batch) for it in found.points] == [
        (8, count, batch) for count in (60, 120) for batch in (1, 8)
    ]
    for point in found.points:
        flat, *others = point.ways
        assert flat.gate == "flat"
        assert flat.speedup == flat.flops_share == 1
        assert [way.gate.split(",")[0] for way in others] == ["product-key", "two-level", "cells", "projected"]
        assert flat.flops_per_token == 2 * point.width * point.num_experts
        assert others[0].flops_share < 0.5
    for seen in found.found:
        assert seen.found == tuple(sorted(seen.found))
        assert seen.needed <= seen.cells


def test_of_a_fitted_run(world: World) -> None:
    train(world.config(), world.data, world.store, world.language_model)
    run = Run.load("small", world.data)
    found, projected = found_of_run(run, world.language_model, world.text, 640, 0.9)
    assert (found.gate, found.num_experts, found.k, found.cells) == ("small", 40, 4, 7)
    assert found.probes == (1, 2, 4)
    assert all(0 < mass <= 1 for mass in found.mass)
    assert found.mass[-1] >= found.found[-1] - 0.05
    assert found.found[-1] == pytest.approx(max(found.found))
    assert (projected.candidates, projected.numbers) == (16, (1, 1, 2, 4, 8))
    assert projected.found[0] < projected.found[-1] <= 1
