"""A store of made-up statistics of any size, to browse in."""

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

from backend.database import opened, size_in_bytes
from trainer.config import TextConfig, TrainConfig
from trainer.errors import UserError
from trainer.packing import ACTIVE
from trainer.run import Run, run_names
from trainer.search_text import SEARCH_MARGIN, insert_search, make_search_table, search_body
from trainer.store import (
    ContextRecord,
    ExpertRecord,
    IndexRecord,
    RunRecord,
    SequenceRecord,
    utc_now,
    writing,
)
from trainer.tokens import load_tokenizer

RUN = "bench"
CONTEXT = 128
SEARCHED = 2 / 3
"""Share of an expert's contexts that are among its largest, and can be searched."""
TOKENS = 10_000_000
ACTIVE_PER_CONTEXT = 4
PER_INTERVAL = 4
ROWS_PER_INSERT = 5_000
EXPERTS_PER_INSERT = 100


@dataclass(frozen=True)
class Sizes:
    """How much is in the store."""

    experts: int
    contexts: int
    """Of each expert."""

    sequences: int = 0
    """Of the indexed text; many contexts share one, as they do wherever experts are many. 0: as ``TOKENS`` hold."""

    @property
    def stored_sequences(self) -> int:
        """How many sequences there are for the contexts to point at."""
        return self.sequences or min(TOKENS // CONTEXT, max(self.experts * self.contexts // 4, 1))


def write_store(data: Path, url: str, tokenizer_folder: Path, sizes: Sizes) -> int:
    """Make a run under ``data`` and its index in the store at ``url``, unless they are there.

    Returns the bytes that the store takes.

    Raises:
        UserError: the store cannot be opened, or has a made-up run of another size.
    """
    tokenizer = load_tokenizer(str(tokenizer_folder))
    config = TrainConfig(
        name=RUN,
        language_model="none",
        layer=0,
        text=TextConfig(text="made-up", context=CONTEXT),
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
            f"The store has a made-up run of {experts} experts; give --experts {experts}, or another store."
        )
    return experts is not None


def _settle(engine: Engine) -> None:
    """What a database does by itself a while after so much was written."""
    with engine.begin() as connection:
        connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)" if engine.dialect.name == "sqlite" else "ANALYZE"))


def _write(session: Session, config: TrainConfig, words: list[str], sizes: Sizes) -> None:
    generator = np.random.default_rng(0)
    # Words as frequent as in text: the n-th most frequent one 1 / n as often as the first.
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
        text=config.text.text,
        seed=config.seed,
        context=CONTEXT,
        tokens_wanted=TOKENS,
        tokens_done=TOKENS,
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
        contexts = [context for expert in experts for context in _contexts(run.id, expert, sizes, generator)]
        session.execute(insert(ContextRecord), contexts)
        insert_search(session, run.id, _bodies(contexts, tokens_SL, words))
    session.add(
        IndexRecord(
            run_id=run.id,
            text=config.text.text,
            seed=0,
            tokens=TOKENS,
            context=CONTEXT,
            experts_active=sizes.experts,
            contexts=sizes.experts * sizes.contexts,
            normalised_mse=0.2,
            created_at=now,
        )
    )


def _insert(session: Session, statement: Executable, rows: Iterable[dict[str, Any]]) -> None:
    rows = iter(rows)
    while chunk := list(islice(rows, ROWS_PER_INSERT)):
        session.execute(statement, chunk)


def _experts(run_id: int, sizes: Sizes, vocabulary: int, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    usages = np.clip(generator.lognormal(-8, 2, sizes.experts), 1e-6, 1.0)
    for expert, usage in enumerate(usages.tolist()):
        active = max(1, round(usage * TOKENS))
        largest = float(generator.gamma(4, 1.2)) + 0.1
        coefficients = generator.gamma(2, largest / 8, min(active, 2000))
        yield {
            "run_id": run_id,
            "expert": expert,
            "active_tokens": active,
            "usage": usage,
            "mean": largest * 0.3,
            "largest": largest,
            "p99": largest * 0.9,
            "entropy": float(generator.uniform(0, 12)),
            "top_tokens": [[int(token), max(1, active // 20)] for token in generator.integers(0, vocabulary, 12)],
            "histogram": np.histogram(coefficients, 64, (0, 2 * largest))[0].tolist(),
            "histogram_high": 2.0 ** np.ceil(np.log2(largest)),
            "intervals": [[place * largest / 4, (place + 1) * largest / 4, active // 4] for place in (3, 2, 1, 0)],
        }


def _groups(experts: int) -> Iterator[range]:
    for first in range(0, experts, EXPERTS_PER_INSERT):
        yield range(first, min(first + EXPERTS_PER_INSERT, experts))


def _contexts(run_id: int, expert: int, sizes: Sizes, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    searched = round(sizes.contexts * SEARCHED)
    sequences = generator.integers(0, sizes.stored_sequences, sizes.contexts).tolist()
    gaps = generator.integers(1, CONTEXT // ACTIVE_PER_CONTEXT, (sizes.contexts, ACTIVE_PER_CONTEXT))
    positions = np.cumsum(gaps, axis=1)
    coefficients = generator.gamma(4, 1.2, positions.shape)
    for place, (sequence, active, strengths) in enumerate(zip(sequences, positions, coefficients, strict=True)):
        packed = np.zeros(len(active), ACTIVE)
        packed["position"], packed["coefficient"], packed["rank"] = active, strengths, np.arange(len(active))
        interval = 0 if place < searched else 1 + (place - searched) // PER_INTERVAL
        yield {
            "run_id": run_id,
            "expert": expert,
            "interval": interval,
            "rank": place if interval == 0 else (place - searched) % PER_INTERVAL,
            "sequence": sequence,
            "position": int(active[0]),
            "coefficient": float(packed["coefficient"][0]),
            "active": packed.tobytes(),
        }


def _bodies(contexts: list[dict[str, Any]], tokens_SL: NDArray[Any], words: list[str]) -> Iterator[tuple[int, str]]:
    largest = (context for context in contexts if context["interval"] == 0)
    for expert, of_expert in groupby(largest, key=lambda context: context["expert"]):
        yield expert, search_body(_window(context, tokens_SL, words) for context in of_expert)


def _window(context: dict[str, Any], tokens_SL: NDArray[Any], words: list[str]) -> str:
    start = max(0, context["position"] - SEARCH_MARGIN)
    end = context["position"] + SEARCH_MARGIN + 1
    return "".join(words[token] for token in tokens_SL[context["sequence"], start:end])
