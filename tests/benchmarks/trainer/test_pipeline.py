"""The training and indexing benchmarks run at small sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.trainer import index, train
from benchmarks.trainer.memory import peak_bytes
from benchmarks.trainer.sizes import Sizes
from tests.helpers.language_models import byte_tokenizer

SIZES = [Sizes(width=64, layers=2, num_experts=count, k=4, context=32) for count in (20, 40)]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    byte_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def test_training_is_measured(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "peak_bytes", lambda work, *given: 1)
    found = train.bench_train(tokenizer, SIZES, [256, 512], batch=64, rounds=1, device="cpu")
    assert [(it.num_experts, it.tokens) for it in found.points] == [(20, 256), (20, 512), (40, 256), (40, 512)]
    assert all(it.efficiency > 0 and it.tokens_per_second > 0 for it in found.points)
    assert found.efficiency == found.points[-1].efficiency


def test_indexing_is_measured(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([10, 11, 12, 18])
    monkeypatch.setattr(index, "peak_bytes", lambda work, *given: next(peaks))
    found = index.bench_index(tokenizer, SIZES, [256, 512], rounds=1, device="cpu")
    assert [(it.num_experts, it.tokens) for it in found.points] == [(20, 256), (20, 512), (40, 256), (40, 512)]
    assert all(it.whole_efficiency > 0 and it.efficiency > 0 for it in found.points)
    assert found.memory_growth == 1.5


def test_peak_memory_excludes_the_setup() -> None:
    few, many = (peak_bytes(np.ones, size, np.uint8) for size in (1, 300_000_000))
    assert many - few == pytest.approx(300_000_000, rel=0.1)
