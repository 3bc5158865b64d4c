"""A synthetic database of any size for the browsing benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, Executable, insert, select, text
from sqlalchemy.orm import Session

from mxd.backend.database.engine import opened, size_in_bytes
from mxd.trainer.config.training import TextConfig, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.tokenizer import load_tokenizer
from mxd.trainer.storage.database.column_types import ACTIVE
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.search import SEARCH_MARGIN, insert_search, make_search_table, search_body
from mxd.trainer.storage.database.tables import ExampleRecord, IndexRecord, RunRecord, SequenceRecord, utc_now
from mxd.trainer.storage.run import Run, run_names

RUN = "bench"
CONTEXT = 128
SEARCHED = 2 / 3
"""Fraction of an expert's examples that are top examples, and searchable."""
TOKENS = 10_000_000
ACTIVE_PER_EXAMPLE = 4
PER_INTERVAL = 4
ROWS_PER_INSERT = 5_000
EXPERTS_PER_INSERT = 100


@dataclass(frozen=True)
class Sizes:
    """Size of the synthetic database."""

    experts: int
    examples: int
    """Examples per expert."""

    sequences: int = 0
    """Token sequences of the indexed text; many examples share one. 0: as many as ``TOKENS`` hold."""

    @property
    def stored_sequences(self) -> int:
        """Number of sequences that the examples refer to."""
        return self.sequences or min(TOKENS // CONTEXT, max(self.experts * self.examples // 4, 1))


def write_database(data: Path, url: str, tokenizer_folder: Path, sizes: Sizes) -> int:
    """Create a run under ``data`` and its index in the database at ``url``, unless they exist.

    Returns the size of the database in bytes.

    Raises:
        UserError: the database cannot be opened, or has a synthetic run of another size.
    """
    tokenizer = load_tokenizer(str(tokenizer_folder))
    config = TrainConfig(
        name=RUN,
        language_model="none",
        layer=0,
        text=TextConfig(dataset="made-up", context_length=CONTEXT),
        tokens=TOKENS,
        num_experts=sizes.experts,
    )
    if RUN not in run_names(data):
        Run.create(config, data, tokenizer)
    words = [str(tokenizer.decode([token])) for token in range(len(tokenizer))]
    with opened(url) as engine:
        if not _is_there(engine, sizes):
            with writing(engine) as session:
                _write(session, config, words, sizes)
            _settle(engine)
        return size_in_bytes(engine)


def _is_there(engine: Engine, sizes: Sizes) -> bool:
    with Session(engine) as session:
        experts = session.scalar(select(RunRecord.num_experts).where(RunRecord.name == RUN))
    if experts not in (None, sizes.experts):
        raise UserError(
            f"The database has a made-up run of {experts} experts; give --experts {experts}, or another database."
        )
    return experts is not None


def _settle(engine: Engine) -> None:
    """Run the maintenance that a database does by itself some time after so many writes."""
    with engine.begin() as connection:
        connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)" if engine.dialect.name == "sqlite" else "ANALYZE"))


def _write(session: Session, config: TrainConfig, words: list[str], sizes: Sizes) -> None:
    generator = np.random.default_rng(0)
    # Zipf's law: the n-th most frequent word is 1 / n as frequent as the first.
    chances_V = 1 / np.arange(1, len(words) + 1)
    tokens_SL = generator.choice(len(words), (sizes.stored_sequences, CONTEXT), p=chances_V / chances_V.sum()).astype(
        "<u4"
    )
    now = utc_now()
    run = RunRecord(
        name=config.name,
        status="finished",
        language_model=config.language_model,
        layer=config.layer,
        method=config.method,
        activation="gelu",
        num_experts=sizes.experts,
        k=config.k,
        input_width=0,
        hidden_width=0,
        output_width=0,
        parameters=0,
        text=config.text.dataset,
        seed=config.seed,
        context_length=CONTEXT,
        target_tokens=TOKENS,
        trained_tokens=TOKENS,
        config=config.model_dump(mode="json"),
        started_at=now,
        updated_at=now,
    )
    session.add(run)
    session.flush()
    _insert(session, insert(ExpertRecord), _experts(run.id, sizes, len(words), generator))
    sequences = ({"run_id": run.id, "sequence": i, "token_ids": row.tobytes()} for i, row in enumerate(tokens_SL))
    _insert(session, insert(SequenceRecord), sequences)
    make_search_table(session, run.id)
    for experts in _groups(sizes.experts):
        examples = [example for expert in experts for example in _examples(run.id, expert, sizes, generator)]
        session.execute(insert(ExampleRecord), examples)
        insert_search(session, run.id, _bodies(examples, tokens_SL, words))
    session.add(
        IndexRecord(
            run_id=run.id,
            text=config.text.dataset,
            seed=0,
            tokens=TOKENS,
            context_length=CONTEXT,
            active_experts=sizes.experts,
            examples=sizes.experts * sizes.examples,
            normalized_mse=0.2,
            created_at=now,
        )
    )


def _insert(session: Session, statement: Executable, rows: Iterable[dict[str, Any]]) -> None:
    rows = iter(rows)
    while chunk := list(islice(rows, ROWS_PER_INSERT)):
        session.execute(statement, chunk)


def _experts(run_id: int, sizes: Sizes, vocabulary: int, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    densities = np.clip(generator.lognormal(-8, 2, sizes.experts), 1e-6, 1.0)
    for expert, density in enumerate(densities.tolist()):
        active = max(1, round(density * TOKENS))
        largest = float(generator.gamma(4, 1.2)) + 0.1
        activations = generator.gamma(2, largest / 8, min(active, 2000))
        yield {
            "run_id": run_id,
            "expert": expert,
            "active_tokens": active,
            "density": density,
            "mean_activation": largest * 0.3,
            "max_activation": largest,
            "p99": largest * 0.9,
            "entropy": float(generator.uniform(0, 12)),
            "top_tokens": [[int(token), max(1, active // 20)] for token in generator.integers(0, vocabulary, 12)],
            "histogram": np.histogram(activations, 64, (0, 2 * largest))[0].tolist(),
            "histogram_high": 2.0 ** np.ceil(np.log2(largest)),
            "bins": [[place * largest / 4, (place + 1) * largest / 4, active // 4] for place in (3, 2, 1, 0)],
        }


def _groups(experts: int) -> Iterator[range]:
    for first in range(0, experts, EXPERTS_PER_INSERT):
        yield range(first, min(first + EXPERTS_PER_INSERT, experts))


def _examples(run_id: int, expert: int, sizes: Sizes, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    searched = round(sizes.examples * SEARCHED)
    sequences = generator.integers(0, sizes.stored_sequences, sizes.examples).tolist()
    gaps = generator.integers(1, CONTEXT // ACTIVE_PER_EXAMPLE, (sizes.examples, ACTIVE_PER_EXAMPLE))
    positions = np.cumsum(gaps, axis=1)
    activations = generator.gamma(4, 1.2, positions.shape)
    for place, (sequence, active, strengths) in enumerate(zip(sequences, positions, activations, strict=True)):
        packed = np.zeros(len(active), ACTIVE)
        packed["position"], packed["activation"], packed["rank"] = active, strengths, np.arange(len(active))
        interval = 0 if place < searched else 1 + (place - searched) // PER_INTERVAL
        yield {
            "run_id": run_id,
            "expert": expert,
            "bin": interval,
            "rank": place if interval == 0 else (place - searched) % PER_INTERVAL,
            "sequence": sequence,
            "position": int(active[0]),
            "activation": float(packed["activation"][0]),
            "active": packed.tobytes(),
        }


def _bodies(examples: list[dict[str, Any]], tokens_SL: NDArray[Any], words: list[str]) -> Iterator[tuple[int, str]]:
    largest = (example for example in examples if example["bin"] == 0)
    for expert, of_expert in groupby(largest, key=lambda example: example["expert"]):
        yield expert, search_body(_window(example, tokens_SL, words) for example in of_expert)


def _window(example: dict[str, Any], tokens_SL: NDArray[Any], words: list[str]) -> str:
    start = max(0, example["position"] - SEARCH_MARGIN)
    end = example["position"] + SEARCH_MARGIN + 1
    return "".join(words[token] for token in tokens_SL[example["sequence"], start:end])
