"""The benchmark of a busy machine measures every number of spins with and without a busy core."""

from __future__ import annotations

from pathlib import Path

from benchmarks.trainer.busy import bench_busy
from tests.helpers.language_models import saved_language_model


def test_each_number_of_spins_is_measured_beside_busy_cores(tmp_path: Path) -> None:
    source = str(saved_language_model(tmp_path / "language-model"))
    points = bench_busy(source, [5000], (0, 1), rounds=1)
    assert [(point.spins, point.busy_cores) for point in points] == [(5000, 0), (5000, 1)]
    assert all(point.forward_ms > 0 and point.token_ms > 0 for point in points)
