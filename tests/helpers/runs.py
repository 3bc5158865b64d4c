"""A small set-up for tests: text on disk, a language model, settings, a database."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from sqlalchemy import Engine, inspect, select
from sqlalchemy.orm import Session
from torch import Tensor

from mxd.trainer.analysis.indexing.build import IndexResult, build_index
from mxd.trainer.config import IndexConfig, OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.database.tables import Base
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.language_models import saved_language_model, tiny_language_model
from tests.helpers.layers import random_layer

Row = TypeVar("Row", bound=Base)


@dataclass(frozen=True)
class World:
    """Folder of a test's runs, and the inputs of training."""

    data: Path
    database: Engine
    language_model: LanguageModel
    text: TextConfig

    def config(self, name: str = "small", **changes: Any) -> TrainConfig:
        """Settings of a run of 24 steps, three buffers and 40 experts, 4 of them active."""
        settings: dict[str, Any] = {
            "name": name,
            "language_model": self.language_model.source,
            "layer": 1,
            "text": self.text,
            "tokens": 24 * 64,
            "num_experts": 40,
            "k": 4,
            "optimizer": OptimizerConfig(learning_rate=0.01, batch_tokens=64, buffer_tokens=512),
            "checkpoint_every": 512,
            "log_every": 4,
        }
        return TrainConfig(**(settings | changes))

    def train(self, name: str = "small", **changes: Any) -> Run:
        """Train a run; ``changes`` are those of ``config``."""
        train_layer(self.config(name, **changes), self.data, self.database, self.language_model)
        return Run.load(name, self.data)

    def index(self, run: Run, **changes: Any) -> IndexResult:
        """Index a run on 640 tokens with few examples; ``changes`` are those of the settings."""
        settings: dict[str, Any] = {"text": self.text, "tokens": 640, "top_examples": 3, "examples_per_bin": 2}
        config = IndexConfig.model_validate(settings | changes)
        return build_index(run, config, self.language_model, self.database)

    def rows(self, table: type[Row]) -> list[Row]:
        """All rows of a table, in the order of its keys."""
        with Session(self.database) as session:
            return list(session.scalars(select(table).order_by(*inspect(table).primary_key)))

    def weights(self, name: str) -> dict[str, Tensor]:
        """Weights of a trained run."""
        return Run.load(name, self.data).layer.state_dict()

    def check_same_weights(self, one: str, other: str, rtol: float = 0, atol: float = 0) -> None:
        """Two runs have the same weights: bit-identical ones, or within a tolerance."""
        torch.testing.assert_close(self.weights(other), self.weights(one), rtol=rtol, atol=atol)


def stop_after(calls: int) -> Callbacks:
    """Callbacks that stop the work when they are asked for the ``calls``-th time."""
    numbers = count(1)
    return Callbacks(is_cancelled=lambda: next(numbers) >= calls)


def small_world(folder: Path) -> World:
    """Create a set-up in ``folder``: 300 documents of random words, context length 16."""
    generator = np.random.default_rng(0)
    words = ["red", "blue", "ran", "sat", "the", "a", "old", "fox", "dog", "very", "and", "sang"]
    path = folder / "text.jsonl"
    lines = [" ".join(generator.choice(words, size=12)) for _ in range(300)]
    path.write_text("".join(f'{{"text": "{line}."}}\n' for line in lines))
    return World(
        data=folder / "data",
        database=open_trainer_database(sqlite_url(folder / "data")),
        language_model=tiny_language_model(),
        text=TextConfig(dataset=str(path), context_length=16),
    )


def indexed_world(folder: Path) -> World:
    """A set-up with the trained and indexed run ``small`` of a language model that is on disk."""
    world = small_world(folder)
    source = str(saved_language_model(folder / "language-model"))
    language_model = LanguageModel.load(source, "cpu")
    train_layer(world.config(language_model=source), world.data, world.database, language_model)
    index = IndexConfig(text=world.text, tokens=2_000)
    build_index(Run.load("small", world.data), index, language_model, world.database)
    return world


def run_of(world: World, name: str = "small", layer: int = 1, seed: int | None = None) -> Run:
    """A run with random weights that is not on disk; the seed is by default that of the layer's number."""
    run = Run(world.data, TrainConfig.model_validate(world.config(name=name, layer=layer).model_dump()))
    run.__dict__["layer"] = random_layer(widths=(16, 20, 16), seed=layer if seed is None else seed)
    return run
