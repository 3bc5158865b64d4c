"""A user's own model and tokenizer per architecture, and a run trained and indexed on them through the public API."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import mxd
from tests.helpers.runs import byte_tokenizer, tiny_language_model

FAMILIES = ("gpt2", "llama", "gpt-neox")
one_family = pytest.mark.parametrize("user", FAMILIES[:1], indirect=True)
"""Marks a test whose outcome does not depend on the architecture."""
WORDS = ("red", "blue", "ran", "sat", "the", "a", "old", "fox", "dog", "very", "and", "sang")


def texts(count: int = 300, seed: int = 0) -> Iterator[str]:
    """Documents of random words."""
    generator = np.random.default_rng(seed)
    return (" ".join(generator.choice(WORDS, size=12)) + "." for _ in range(count))


@dataclass(frozen=True)
class User:
    """Model, tokenizer, data folder and run of a user."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    data: Path
    run: mxd.Layer


def user_model(family: str) -> PreTrainedModel:
    """A model as transformers returns it, in evaluation mode and with trainable parameters."""
    model: PreTrainedModel = tiny_language_model(family).module.requires_grad_(True).eval()
    return model


@pytest.fixture(scope="session", params=FAMILIES)
def user(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> User:
    """A run that was trained from an iterator of token ids, and indexed on texts."""
    model, tokenizer, data = user_model(request.param), byte_tokenizer(), tmp_path_factory.mktemp("user")
    ids = (tokenizer(text)["input_ids"] for text in texts())
    sizes: dict[str, Any] = {"num_experts": 40, "k": 4, "context_length": 16, "batch_tokens": 64, "buffer_tokens": 512}
    run = mxd.train(
        model, tokenizer, ids, layer=1, tokens=1536, name="mine", data=data, learning_rate=0.01, progress=False, **sizes
    )
    mxd.index(run, list(texts(150, seed=1)), progress=False)
    return User(model, tokenizer, data, run)
