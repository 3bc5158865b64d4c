"""Generations without edits equal those of plain transformers."""

from __future__ import annotations

from pathlib import Path

from benchmarks.trainer.identity import SAMPLES, bench_identity
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.language_models import saved_language_model
from tests.helpers.runs import small_world
from tests.trainer.inference.test_steering import make_run


def test_every_generation_is_identical(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    counts: list[int] = []
    language_model = LanguageModel.load(str(saved_language_model(tmp_path / "language-model")), "cpu")
    found = bench_identity(
        language_model, make_run(world), 6 * SAMPLES, 12, Callbacks(lambda done, _of, _note: counts.append(done))
    )
    assert found.generations == found.identical == counts[-1] == 6 * SAMPLES
    assert found.architectures == dict.fromkeys(("llama", "gpt2", "gpt-neox"), 2 * SAMPLES)
    assert found.tokens > 6 * SAMPLES * 6
    world.database.dispose()
