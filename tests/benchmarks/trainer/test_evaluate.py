"""The cost of an evaluation is measured in forward passes of the language model."""

from __future__ import annotations

from pathlib import Path

from benchmarks.trainer.evaluate import bench_evaluate
from mxd.trainer.config import EvaluateConfig
from tests.helpers.runs import small_world
from tests.trainer.inference.test_steering import make_run


def test_each_run_is_measured_in_forward_passes(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    run = make_run(world)
    config = EvaluateConfig(text=world.text, tokens=256)
    result = bench_evaluate(world.language_model, [run], config, rounds=1)
    world.database.dispose()
    (point,) = result.points
    assert (point.run, point.layer) == (run.name, run.config.layer)
    assert point.forward_tokens_per_second > 0
    assert 0 < point.interventions_ratio < point.full_ratio
    assert result.blocks == len(world.language_model.architecture.blocks)
