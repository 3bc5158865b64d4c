"""Generations with no edits are those of transformers without us."""

from __future__ import annotations

from pathlib import Path

from tests.language_models import saved_language_model
from tests.runs import World
from tests.trainer.test_steering import make_run
from trainer.bench.identity import SAMPLES, bench_identity
from trainer.language_model import LanguageModel


def test_every_generation_is_identical(world: World, tmp_path: Path) -> None:
    told: list[int] = []
    language_model = LanguageModel.load(str(saved_language_model(tmp_path / "language-model")), "cpu")
    found = bench_identity(language_model, make_run(world), 6 * SAMPLES, 12, lambda done, _of, _note: told.append(done))
    assert found.generations == found.identical == told[-1] == 6 * SAMPLES
    assert found.architectures == dict.fromkeys(("llama", "gpt2", "gpt-neox"), 2 * SAMPLES)
    assert found.tokens > 6 * SAMPLES * 6
