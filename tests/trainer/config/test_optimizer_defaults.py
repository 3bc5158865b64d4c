"""The default learning rate and tokens per step depend on the number of tokens, and the run stores them."""

from __future__ import annotations

import pytest

from mxd.trainer.config import TextConfig, TrainConfig
from mxd.trainer.config.training import FINETUNE_LEARNING_RATE, FinetuneConfig, default_learning_rate

TEXT = TextConfig(dataset="text.jsonl")


def config(tokens: object, **settings: object) -> TrainConfig:
    values = {"name": "run", "language_model": "model", "layer": 0, "text": TEXT, "tokens": tokens}
    return TrainConfig.model_validate({**values, **settings})


@pytest.mark.parametrize(
    ("tokens", "rate"), [(1000, 3e-3), (4_000_000, 3e-3), (20_000_000, 9.7e-4), (480_000_000, 1.1e-4)]
)
def test_the_learning_rate_is_constant_up_to_4m_tokens_and_close_to_the_papers_at_480m(
    tokens: int, rate: float
) -> None:
    assert default_learning_rate(tokens) == rate
    assert config(tokens).optimizer.learning_rate == rate


def test_a_given_rate_is_kept_and_a_stored_one_survives_other_defaults() -> None:
    assert config("20M", optimizer={"learning_rate": 1e-2}).optimizer.learning_rate == 1e-2
    stored = config("20M").model_dump()
    assert TrainConfig.model_validate({**stored, "tokens": 40_000_000}).optimizer.learning_rate == 9.7e-4


@pytest.mark.parametrize("optimizer", [{}, {"batch_tokens": 8}])
def test_fine_tuning_has_its_own_default_learning_rate(optimizer: dict[str, int]) -> None:
    chosen = FinetuneConfig.model_validate({"text": TEXT, "tokens": "1M", "optimizer": optimizer})
    assert chosen.optimizer.learning_rate == FINETUNE_LEARNING_RATE


@pytest.mark.parametrize(("tokens", "batch"), [(1000, 512), (4_000_000, 512), (4_000_001, 2048), ("480M", 2048)])
def test_short_runs_take_small_steps(tokens: object, batch: int) -> None:
    assert config(tokens).optimizer.batch_tokens == batch
    assert config(tokens, optimizer={"learning_rate": 1e-3}).optimizer.batch_tokens == batch
    assert config(tokens, optimizer={"batch_tokens": 96}).optimizer.batch_tokens == 96
    assert FinetuneConfig(text=TEXT, tokens=1000).optimizer.batch_tokens == 2048
