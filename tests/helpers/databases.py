"""A database of synthetic statistics: many ties, dead experts, two runs; permuted experts; a random benchmark."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sqlalchemy import Column, Engine, Integer, MetaData, Table, insert, literal, select, text
from sqlalchemy.orm import Session

from mxd.backend.database.engine import open_database
from mxd.trainer.config.analysis import BENCHMARK_FOLDER, BENCHMARK_SUMMARY, RecurrenceConfig
from mxd.trainer.config.training import TextConfig, TrainConfig
from mxd.trainer.evaluation.benchmark import BASELINES, METRICS, _baseline
from mxd.trainer.evaluation.benchmark_results import Benchmark, BenchmarkDifference, BenchmarkScore, BenchmarkSettings
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.storage.database import column_types as packing
from mxd.trainer.storage.database.engine import connect
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.search import insert_search, make_search_table, search_body
from mxd.trainer.storage.database.tables import (
    AblationRecord,
    AutomaticLabelRecord,
    Base,
    ExampleRecord,
    IndexRecord,
    MeasurementRecord,
    MetricRecord,
    RecurrenceRecord,
    RunRecord,
    SequenceRecord,
    SteeringStrengthRecord,
    utc_now,
)
from mxd.trainer.storage.run import RUN_FILE, Run, runs_folder
from mxd.trainer.storage.run_records import enter
from mxd.trainer.utils.bootstrap import Bootstrap
from tests.helpers.runs import byte_tokenizer, layer_config

NUM_EXPERTS = 160
ACTIVE = 120
"""First of the dead experts."""
COMPARED = 100
"""First of the experts that were not compared with other runs."""
TOKENS = 20_000
CONTEXT_LENGTH = 16
PER_EXPERT = 7
"""Stored examples: four of the largest activations, three of bin 1."""
SENTENCES = ("the old fox sang.", "Der Hund, dass er", "x = fn(a[0]) + 1", "may might perhaps")


def made_up_database(data: Path, url: str) -> Engine:
    """Create a database with the indexed run ``first`` and the run ``second``, which is still training."""
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
        text=TextConfig(dataset="text.jsonl", context_length=CONTEXT_LENGTH),
        tokens=TOKENS,
        num_experts=NUM_EXPERTS,
        k=4,
    )
    run = Run.create(config, data, byte_tokenizer())
    layer = build_layer(layer_config(widths=(16, 24, 16), num_experts=NUM_EXPERTS, k=4))
    record = enter(session, run, layer, TOKENS)
    record.status, record.trained_tokens = status, TOKENS // 2
    record.started_at = record.updated_at = utc_now() - timedelta(days=age)
    for step in (50, 100, 150):
        session.add(metric(record.id, step))
    return record


def metric(run_id: int, step: int) -> MetricRecord:
    return MetricRecord(
        run_id=run_id,
        step=step,
        tokens=step * 64,
        normalized_mse=10.0 / step,
        dead_share=0.1,
        l0=4.0,
        max_density=0.5,
        tokens_per_second=1000.0,
        seconds=step / 10,
    )


def _index(session: Session, run: RunRecord) -> None:
    generator = np.random.default_rng(1)
    session.add_all(_expert(run.id, expert, generator) for expert in range(NUM_EXPERTS))
    session.add_all(ablation(run.id, expert) for expert in range(ACTIVE))
    session.add_all(match(run.id, expert, other) for expert in range(COMPARED) for other in ("second", "third"))
    settings = RecurrenceConfig(text=TextConfig(dataset="held-out.jsonl"), tokens=4000).model_dump(mode="json")
    session.add(MeasurementRecord(run_id=run.id, command="recurrence", settings=settings))
    tokenizer = byte_tokenizer()
    for number, sentence in enumerate(SENTENCES):
        ids = np.array(tokenizer(sentence)["input_ids"][:CONTEXT_LENGTH], dtype="<u4")
        session.add(SequenceRecord(run_id=run.id, sequence=number, token_ids=ids.tobytes()))
    examples = [_example(run.id, expert, place) for expert in range(ACTIVE) for place in range(PER_EXPERT)]
    session.add_all(examples)
    session.flush()
    make_search_table(session, run.id)
    for expert in range(ACTIVE):
        texts = [SENTENCES[it.sequence] for it in examples if (it.expert, it.bin) == (expert, 0)]
        insert_search(session, run.id, [(expert, search_body(texts))])
    session.add(
        IndexRecord(
            run_id=run.id,
            text=run.text,
            seed=0,
            tokens=TOKENS,
            context_length=CONTEXT_LENGTH,
            active_experts=ACTIVE,
            examples=len(examples),
            normalized_mse=0.25,
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
        density=tokens / TOKENS,
        mean_activation=largest / 2,
        max_activation=largest,
        p99=largest * 0.9,
        entropy=float(generator.integers(0, 3)) if active else 0.0,
        top_tokens=[[letter, tokens // 2], [letter + 1, 1]] if active else [],
        histogram=[tokens - 1, 1, 0, 0] if active else [0, 0, 0, 0],
        histogram_high=8.0 if active else 0.0,
        bins=[[4.0, 8.0, 1], [0.0, 4.0, tokens - 1]] if active else [],
        loss_increase=(expert % 5 - 1) / 100 if active else 0.0,
        kl_amplified=expert % 4 / 100 if active else 0.0,
        output_share=(1 + expert % 3) / 10 if active else 0.0,
        input_dependence=expert % 2 / 2 if active else 0.0,
    )


def ablation(run_id: int, expert: int) -> AblationRecord:
    return AblationRecord(
        run_id=run_id,
        expert=expert,
        examples=3,
        loss_increase=(expert % 5 - 1) / 100,
        kl_ablated=0.02,
        kl_amplified=expert % 4 / 100,
        kl_random_expert=0.01,
        kl_random_direction=0.005,
        random_expert=(expert + 1) % ACTIVE,
        output_share=(1 + expert % 3) / 10,
        input_dependence=expert % 2 / 2,
        promoted=[[40, 0.5], [41, 0.25]],
        suppressed=[[42, -0.5]],
    )


def match(run_id: int, expert: int, other_run: str) -> RecurrenceRecord:
    """Found again in both other runs, in the second, or in none."""
    return RecurrenceRecord(
        run_id=run_id,
        expert=expert,
        other_run=other_run,
        other_expert=expert + 1,
        mutual=expert % 3 == 0 or (expert % 3 == 1 and other_run == "second"),
        firing_cosine=0.5 + expert % 4 / 10,
        firing_low=0.4,
        firing_high=0.9,
        firing_chance=0.1,
        writing_cosine=0.6,
        writing_chance=0.05,
    )


def automatic_label(run_id: int, expert: int, labeller: str, label: str, accuracy: float) -> AutomaticLabelRecord:
    scores: dict[str, Any] = {"balanced_accuracy": accuracy, "precision": accuracy, "recall": 0.5, "test_examples": 9}
    return AutomaticLabelRecord(
        run_id=run_id, expert=expert, labeller=labeller, label=label, created_at=utc_now(), **scores
    )


def steering_strength(run_id: int, expert: int, kind: str, strength: float, kl: float = 0.5) -> SteeringStrengthRecord:
    effects = {"kl": kl, "loss": 2.0, "self_similarity": 0.5, "promoted_share": 0.1}
    return SteeringStrengthRecord(run_id=run_id, expert=expert, kind=kind, strength=strength, **effects)


def _example(run_id: int, expert: int, place: int) -> ExampleRecord:
    number, rank = (0, place) if place < 4 else (1, place - 4)
    position = 3 + rank
    pairs = [(1, 0.5), (position, 4.0 - rank / 2)]
    return ExampleRecord(
        run_id=run_id,
        expert=expert,
        bin=number,
        rank=rank,
        sequence=(expert + place) % len(SENTENCES),
        position=position,
        activation=4.0 - rank / 2,
        active=np.array([(*pair, 2) for pair in pairs], dtype=packing.ACTIVE).tobytes(),
    )


def permuted_copy(run: Run, name: str, order: Sequence[int], database: Engine) -> None:
    """Copy a run and its index; expert n of the copy is expert ``order[n]`` of the original."""
    folder = shutil.copytree(run.folder, runs_folder(run.folder.parent.parent) / name)
    settings = json.loads((folder / RUN_FILE).read_text("utf-8"))
    (folder / RUN_FILE).write_text(json.dumps({**settings, "name": name}), "utf-8")
    copy = Run.load(folder)
    with torch.no_grad():
        for table in copy.layer.expert_tables:
            rows = copy.layer.get_parameter(table)
            rows.copy_(rows[torch.tensor(order)].clone())
    copy.layer.save(folder)
    with Session(database) as session, session.begin():
        _copy_rows(session, run.name, name, order)


def stored_rows(url: str, table: str) -> list[tuple[Any, ...]]:
    """All rows of a table, in one order."""
    engine = connect(url)
    with engine.connect() as connection:
        found = sorted((tuple(row) for row in connection.execute(text(f"SELECT * FROM {table}"))), key=str)
    engine.dispose()
    return found


def _copy_rows(session: Session, name: str, new_name: str, order: Sequence[int]) -> None:
    """Copy within the database: reading and writing a hundred thousand rows takes ten seconds."""
    record = session.scalars(select(RunRecord).where(RunRecord.name == name)).one()
    run_id = record.id
    columns = [column.key for column in RunRecord.__mapper__.column_attrs]
    copied = RunRecord(**{column: getattr(record, column) for column in columns} | {"id": None, "name": new_name})
    session.add(copied)
    session.flush()
    old, new = Column("old", Integer, primary_key=True), Column("new", Integer)
    places = Table("places", MetaData(), old, new, prefixes=["TEMPORARY"])
    places.create(session.connection())
    session.execute(insert(places), [{"old": expert, "new": place} for place, expert in enumerate(order)])
    for kind in (MetricRecord, IndexRecord, SequenceRecord, ExpertRecord, ExampleRecord):
        table = Base.metadata.tables[kind.__tablename__]
        values = {**table.c, "run_id": literal(copied.id)}
        rows = select(table)
        if "expert" in values:
            values["expert"], rows = new, rows.join(places, table.c.expert == old)
        rows = rows.with_only_columns(*values.values()).where(table.c.run_id == run_id)
        session.execute(insert(table).from_select(list(values), rows))
    places.drop(session.connection())


DATASETS = ("5_hist_fig_ismale", "36_sciq_tf", "91_glue_qqp", "96_spam_is")
UNITS = (1, 5)


def write_benchmark(data: Path, *runs: str) -> Benchmark:
    """Write a summary of runs of layer 3 into a data folder."""
    names = [*runs, *(_baseline(kind, 3) for kind in BASELINES)]
    bootstrap, generator = Bootstrap(len(DATASETS), 100, 0), np.random.default_rng(0)
    scores, differences = [], []
    for metric in METRICS:
        for units in UNITS:
            value_D = {name: generator.uniform(0.4, 1, len(DATASETS)) for name in names}
            scores += [BenchmarkScore(name, units, metric, bootstrap.mean(value_D[name])) for name in names]
            for name in names[1:]:
                gain_D = value_D[names[0]] - value_D[name]
                differences.append(
                    BenchmarkDifference(name, units, metric, bootstrap.mean(gain_D), int((gain_D > 0).sum()))
                )
    benchmark = Benchmark(
        settings=BenchmarkSettings("0.4.2", "lm", "float32", 300, 64, UNITS, (42, 43), dict.fromkeys(runs, "0" * 32)),
        datasets=DATASETS,
        training_texts=(150, 200),
        test_texts=(99, 99),
        scores=tuple(scores),
        differences=tuple(differences),
    )
    folder = data / BENCHMARK_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BENCHMARK_SUMMARY).write_text(json.dumps(asdict(benchmark)))
    return benchmark
