"""Generations with no edits are those of transformers without us."""

from __future__ import annotations

from tests.runs import World
from tests.trainer.test_steering import make_run
from trainer.bench.identity import SAMPLES, bench_identity


def test_every_generation_is_identical(world: World) -> None:
    told: list[int] = []
    found = bench_identity(
        world.language_model, make_run(world), 6 * SAMPLES, 12, lambda done, _of, _note: told.append(done)
    )
    assert found.generations == found.identical == told[-1] == 6 * SAMPLES
    assert found.architectures == dict.fromkeys(("llama", "gpt2", "gpt-neox"), 2 * SAMPLES)
    assert found.tokens > 6 * SAMPLES * 6
