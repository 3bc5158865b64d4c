"""How fast browsing is: a store of made-up statistics of any size, a real server on it, and clients that ask.

Shapes: N experts, S sequences, L tokens of a sequence.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, insert, text

from backend.database import open_database, size_in_bytes
from trainer.config import LayerConfig, TextConfig, TrainConfig
from trainer.run import Run
from trainer.store import (
    SEARCH_TABLE,
    ContextRecord,
    ExpertRecord,
    IndexRecord,
    RunRecord,
    SequenceRecord,
    sqlite_url,
    utc_now,
    writing,
)
from trainer.tokens import load_tokenizer

RUN = "bench"
CONTEXT = 128
SEARCHED = 2 / 3
"""Share of an expert's contexts that are among its largest, and can be searched."""
TOKENS = 10_000_000
WARM_UP = 3


@dataclass(frozen=True)
class Quantiles:
    """Milliseconds until the whole answer has come."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True)
class BrowseBench:
    """What ``mxd bench browse`` reports."""

    queries: dict[str, Quantiles]
    requests_per_second: float
    """All queries in turn, from several clients at once."""
    bytes_per_context: float
    experts: int
    contexts: int
    clients: int


def write_store(data: Path, tokenizer_folder: Path, num_experts: int, contexts: int) -> int:
    """Make a run and its index of ``contexts`` contexts an expert under ``data``. Returns the bytes it takes."""
    tokenizer = load_tokenizer(str(tokenizer_folder))
    config = TrainConfig(
        name=RUN,
        language_model="none",
        layer=0,
        text=TextConfig(text="made-up", context=CONTEXT),
        tokens=TOKENS,
        num_experts=num_experts,
    )
    Run.create(config, data, tokenizer)
    words = np.array([tokenizer.decode([token]) for token in range(len(tokenizer))])
    engine = open_database(sqlite_url(data))
    try:
        _write(engine, config, words, num_experts, contexts)
        with engine.connect() as connection:
            connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
        return size_in_bytes(engine)
    finally:
        engine.dispose()
