"""A store of made-up statistics, written through the ORM: many equal values, dead experts, two runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from backend.database import open_database
from tests.language_models import byte_tokenizer
from trainer import packing
from trainer.config import TextConfig, TrainConfig
from trainer.run import Run
from trainer.search_text import insert_search, make_search_table, search_body
from trainer.store import (
    ContextRecord,
    ExpertRecord,
    IndexRecord,
    InfluenceRecord,
    MetricRecord,
    RunRecord,
    SequenceRecord,
    utc_now,
)

NUM_EXPERTS = 160
ACTIVE = 120
"""Experts from this one on are dead."""
TOKENS = 20_000
CONTEXT = 16
PER_EXPERT = 7
"""Contexts: four of the largest, three of interval 1."""
SENTENCES = ("the old fox sang.", "Der Hund, dass er", "x = fn(a[0]) + 1", "may might perhaps")


def made_up_store(data: Path, url: str) -> Engine:
    """A store with the indexed run ``first`` and the run ``second``, which is being fitted; folders in ``data``."""
    engine = open_database(url)
    with Session(engine) as session, session.begin():
        first = _run(session, data, "first", "finished", age=2)
        _run(session, data, "second", "training", age=1)
        _index(session, first)
    return engine


def _run(session: Session, data: Path, name: str, status: str, age: int) -> RunRecord:
    config = TrainConfig(
        name=name,
        language_model="tiny-llama",
        layer=1,
        text=TextConfig(text="text.jsonl", context=CONTEXT),
        tokens=TOKENS,
        num_experts=NUM_EXPERTS,
        k=4,
    )
    Run.create(config, data, byte_tokenizer())
    started = utc_now() - timedelta(days=age)
    record = RunRecord(
        name=name,
        status=status,
        error=None,
        language_model=config.language_model,
        layer=config.layer,
        method=config.method,
        activation="silu",
        num_experts=NUM_EXPERTS,
        k=config.k,
        input_width=16,
        hidden_width=24,
        output_width=16,
        parameters=6_000,
        text=config.text.text,
        seed=config.seed,
        context=CONTEXT,
        tokens_wanted=TOKENS,
        tokens_done=TOKENS // 2,
        config=config.model_dump(mode="json"),
        started_at=started,
        updated_at=started,
    )
    session.add(record)
    session.flush()
    for step in (50, 100, 150):
        session.add(metric(record.id, step))
    return record


def metric(run_id: int, step: int) -> MetricRecord:
    """Metrics of one step."""
    return MetricRecord(
        run_id=run_id,
        step=step,
        tokens=step * 64,
        normalised_mse=10.0 / step,
        dead_share=0.1,
        l0=4.0,
        largest_usage=0.5,
        tokens_per_second=1000.0,
        seconds=step / 10,
    )


def _index(session: Session, run: RunRecord) -> None:
    generator = np.random.default_rng(1)
    session.add_all(_expert(run.id, expert, generator) for expert in range(NUM_EXPERTS))
    session.add_all(_influence(run.id, expert) for expert in range(ACTIVE))
    tokenizer = byte_tokenizer()
    for number, sentence in enumerate(SENTENCES):
        ids = np.array(tokenizer(sentence)["input_ids"][:CONTEXT], dtype="<u4")
        session.add(SequenceRecord(run_id=run.id, sequence=number, token_ids=ids.tobytes()))
    contexts = [_context(run.id, expert, place) for expert in range(ACTIVE) for place in range(PER_EXPERT)]
    session.add_all(contexts)
    session.flush()
    make_search_table(session, run.id)
    for expert in range(ACTIVE):
        texts = [SENTENCES[it.sequence] for it in contexts if (it.expert, it.interval) == (expert, 0)]
        insert_search(session, run.id, [(expert, search_body(texts))])
    session.add(
        IndexRecord(
            run_id=run.id,
            text=run.text,
            seed=0,
            tokens=TOKENS,
            context=CONTEXT,
            experts_active=ACTIVE,
            contexts=len(contexts),
            normalised_mse=0.25,
            created_at=utc_now(),
        )
    )


def _expert(run_id: int, expert: int, generator: np.random.Generator) -> ExpertRecord:
    active = expert < ACTIVE
    # Few different values, so that every order has to tell equal ones apart.
    tokens = int(generator.integers(1, 6)) * 10 if active else 0
    largest = float(generator.integers(1, 5)) if active else 0.0
    letter = 1 + expert % 26 + ord("a") - ord("!")
    return ExpertRecord(
        run_id=run_id,
        expert=expert,
        active_tokens=tokens,
        usage=tokens / TOKENS,
        mean=largest / 2,
        largest=largest,
        p99=largest * 0.9,
        entropy=float(generator.integers(0, 3)) if active else 0.0,
        top_tokens=[[letter, tokens // 2], [letter + 1, 1]] if active else [],
        histogram=[tokens - 1, 1, 0, 0] if active else [0, 0, 0, 0],
        histogram_high=8.0 if active else 0.0,
        intervals=[[4.0, 8.0, 1], [0.0, 4.0, tokens - 1]] if active else [],
        added_loss=(expert % 5 - 1) / 100 if active else 0.0,
        kl_up=expert % 4 / 100 if active else 0.0,
        output_share=(1 + expert % 3) / 10 if active else 0.0,
        input_dependence=expert % 2 / 2 if active else 0.0,
    )


def _influence(run_id: int, expert: int) -> InfluenceRecord:
    return InfluenceRecord(
        run_id=run_id,
        expert=expert,
        contexts=3,
        added_loss=(expert % 5 - 1) / 100,
        kl_off=0.02,
        kl_up=expert % 4 / 100,
        kl_other=0.01,
        kl_direction=0.005,
        other=(expert + 1) % ACTIVE,
        output_share=(1 + expert % 3) / 10,
        input_dependence=expert % 2 / 2,
        promoted=[[40, 0.5], [41, 0.25]],
        suppressed=[[42, -0.5]],
    )


def _context(run_id: int, expert: int, place: int) -> ContextRecord:
    interval, rank = (0, place) if place < 4 else (1, place - 4)
    position = 3 + rank
    pairs = [(1, 0.5), (position, 4.0 - rank / 2)]
    return ContextRecord(
        run_id=run_id,
        expert=expert,
        interval=interval,
        rank=rank,
        sequence=(expert + place) % len(SENTENCES),
        position=position,
        coefficient=4.0 - rank / 2,
        active=np.array([(*pair, 2) for pair in pairs], dtype=packing.ACTIVE).tobytes(),
    )
