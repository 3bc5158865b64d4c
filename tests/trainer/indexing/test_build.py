"""The index against brute force over the very same text, and what readers see of it meanwhile."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from math import log2

import numpy as np
import pytest
import torch
from sqlalchemy import Engine, func, inspect, select, text
from sqlalchemy.orm import Session

from tests.postgresql import Server
from tests.runs import World
from trainer.activations import capture_sequences
from trainer.config import IndexConfig
from trainer.errors import NotFoundError, UserError
from trainer.indexing import build_index
from trainer.indexing import gather as gathering
from trainer.indexing import write as writing_index
from trainer.registration import register_run
from trainer.run import Run
from trainer.search_text import experts_with
from trainer.search_text.sqlite import search_table
from trainer.store import (
    ContextRecord,
    ExpertRecord,
    IndexRecord,
    RunRecord,
    SequenceRecord,
    delete_index,
    open_store,
    writing,
)
from trainer.tables import Base, RoutedRecord
from trainer.text import blocks
from trainer.tokens import token_texts
from trainer.train import train

ACTIVE = np.dtype([("position", "<u2"), ("coefficient", "<f4"), ("rank", "<u2")])


@pytest.fixture
def run(world: World) -> Run:
    train(world.config(), world.data, world.store, world.language_model)
    return Run.load("small", world.data)


def settings(world: World, **changes: object) -> IndexConfig:
    return IndexConfig.model_validate({"text": world.text, "tokens": 640, "top": 3, "per_interval": 2} | changes)


class BruteForce:
    """Everything that is active, in plain Python lists."""

    def __init__(self, world: World, run: Run, config: IndexConfig) -> None:
        (self.ids_SL,) = blocks(
            config.text, world.language_model.tokenizer, config.tokens, config.seed, "as-is", batch=10_000
        )
        with torch.no_grad():
            routing = run.layer.route(capture_sequences(world.language_model, [1], self.ids_SL).input_TI)
        self.active: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
        self.ranks: dict[tuple[int, int, int], int] = {}
        for token, (coefficients, experts) in enumerate(zip(*(values.tolist() for values in routing), strict=True)):
            for rank, (coefficient, expert) in enumerate(zip(coefficients, experts, strict=True)):
                if coefficient > 0:
                    self.ranks[expert, *divmod(token, config.text.context)] = rank
                    self.active[expert].append((*divmod(token, config.text.context), coefficient))

    def largest(self, expert: int, count: int) -> list[tuple[int, int, float]]:
        peaks: dict[int, tuple[int, int, float]] = {}
        for sequence, position, coefficient in self.active[expert]:
            if sequence not in peaks or coefficient > peaks[sequence][2]:
                peaks[sequence] = (sequence, position, coefficient)
        return sorted(peaks.values(), key=lambda row: (-row[2], row[0]))[:count]


def experts_of(session: Session) -> list[ExpertRecord]:
    return list(session.scalars(select(ExpertRecord).order_by(ExpertRecord.expert)))


@pytest.mark.parametrize("tokens_per_batch", [48, 1024])
def test_equals_brute_force(world: World, run: Run, monkeypatch: pytest.MonkeyPatch, tokens_per_batch: int) -> None:
    monkeypatch.setattr(gathering, "TOKENS_PER_BATCH", tokens_per_batch)
    config = settings(world)
    result = build_index(run, config, world.language_model, world.store)
    brute = BruteForce(world, run, config)
    assert result.tokens == brute.ids_SL.size == 640
    assert result.experts_active == len(brute.active)
    with Session(world.store) as session:
        experts = experts_of(session)
        assert [row.expert for row in experts] == list(range(40))
        for row in experts:
            check_statistics(row, brute)
            check_contexts(session, row, brute, config)
        stored = set(session.scalars(select(SequenceRecord.sequence)))
        sampled = set(session.scalars(select(RoutedRecord.sequence)))
        assert stored == set(session.scalars(select(ContextRecord.sequence))) | sampled
        assert sampled == set(range(640 // config.text.context))
        for record in session.scalars(select(SequenceRecord)):
            assert np.frombuffer(record.token_ids, "<u4").tolist() == brute.ids_SL[record.sequence].tolist()


def check_statistics(row: ExpertRecord, brute: BruteForce) -> None:
    active = brute.active.get(row.expert, [])
    values = [coefficient for *_, coefficient in active]
    assert row.active_tokens == len(active)
    assert row.usage == pytest.approx(len(active) / 640)
    if not active:
        assert (row.mean, row.largest, row.p99, row.entropy, row.histogram_high) == (0, 0, 0, 0, 0)
        assert (row.top_tokens, row.intervals) == ([], [])
        return
    assert row.mean == pytest.approx(np.mean(values))
    assert row.largest == max(values)
    high = 2.0 ** np.frexp(max(values))[1]
    assert row.histogram_high == high
    assert row.histogram == np.histogram(values, bins=64, range=(0, high))[0].tolist()
    tokens = Counter(int(brute.ids_SL[sequence, position]) for sequence, position, _ in active)
    assert row.top_tokens == sorted(map(list, tokens.items()), key=lambda pair: (-pair[1], pair[0]))[:12]
    assert row.entropy == pytest.approx(sum(-n / len(active) * log2(n / len(active)) for n in tokens.values()))
    assert sum(value <= row.p99 for value in values) >= 0.99 * len(values)
    assert sum(int(count) for *_, count in row.intervals) == len(active)
    for low, above, count in row.intervals:
        assert sum(low <= value < above for value in values) == count


def check_contexts(session: Session, row: ExpertRecord, brute: BruteForce, config: IndexConfig) -> None:
    query = select(ContextRecord).where(ContextRecord.expert == row.expert)
    contexts = list(session.scalars(query.order_by(ContextRecord.interval, ContextRecord.rank)))
    top = [(c.sequence, c.position, c.coefficient) for c in contexts if c.interval == 0]
    assert top == brute.largest(row.expert, config.top)
    active = set(brute.active.get(row.expert, []))
    for context in contexts:
        assert (context.sequence, context.position, context.coefficient) in active
        found = np.frombuffer(context.active, ACTIVE)
        wanted = [(p, c) for s, p, c in sorted(active) if s == context.sequence]
        assert found["position"].tolist() == [position for position, _ in wanted]
        np.testing.assert_allclose(found["coefficient"], [c for _, c in wanted], rtol=1e-6)
        assert found["rank"].tolist() == [brute.ranks[row.expert, context.sequence, p] for p, _ in wanted]
    for number, (low, high, count) in enumerate(row.intervals, start=1):
        kept = [context for context in contexts if context.interval == number]
        assert [context.rank for context in kept] == list(range(min(config.per_interval, int(count))))
        assert all(low <= context.coefficient < high for context in kept)


def test_the_same_text_and_seed_give_the_same_index(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot() -> list[tuple[object, ...]]:
        with Session(world.store) as session:
            columns = [column for column in ContextRecord.__table__.columns if column.name != "id"]
            return sorted(tuple(row) for row in session.execute(select(*columns)))

    build_index(run, settings(world), world.language_model, world.store)
    first = snapshot()
    monkeypatch.setattr(gathering, "TOKENS_PER_BATCH", 7 * 16)
    build_index(run, settings(world), world.language_model, world.store)
    assert snapshot() == first


def test_a_new_index_takes_the_place_of_the_old_one(world: World, run: Run) -> None:
    build_index(run, settings(world), world.language_model, world.store)
    build_index(run, settings(world, tokens=160, top=1, per_interval=0), world.language_model, world.store)
    with Session(world.store) as session:
        index = session.scalars(select(IndexRecord)).one()
        contexts = session.scalar(select(func.count()).select_from(ContextRecord))
        searchable = session.scalar(text(f"SELECT count(*) FROM {search_table(index.run_id)}_docsize"))
        assert (index.tokens, index.contexts) == (160, contexts)
        assert searchable == contexts == index.experts_active


def test_a_failed_index_leaves_the_old_one(world: World, run: Run) -> None:
    build_index(run, settings(world), world.language_model, world.store)
    with pytest.raises(UserError, match="repeat"):
        build_index(run, settings(world, tokens=10_000_000), world.language_model, world.store)
    with pytest.raises(UserError, match="stopped"):
        build_index(run, settings(world), world.language_model, world.store, should_stop=lambda: True)
    with Session(world.store) as session:
        assert session.scalars(select(IndexRecord)).one().tokens == 640


def test_text_around_the_peak_can_be_searched(world: World, run: Run) -> None:
    build_index(run, settings(world), world.language_model, world.store)
    with Session(world.store) as session:
        run_id = session.scalars(select(RunRecord.id)).one()
        table = search_table(run_id)
        found = list(session.scalars(text(f"SELECT rowid FROM {table} WHERE {table} MATCH 'fox'")))
        assert found
        for expert in found:
            of_expert = (ContextRecord.expert == expert, ContextRecord.interval == 0)
            numbers = session.scalars(select(ContextRecord.sequence).where(*of_expert)).all()
            sequences = [session.get_one(SequenceRecord, (run_id, number)).token_ids for number in numbers]
            ids = [np.frombuffer(token_ids, "<u4").tolist() for token_ids in sequences]
            assert any("fox" in "".join(token_texts(run.tokenizer, each)) for each in ids)


def test_a_run_that_the_store_does_not_know(world: World, run: Run) -> None:
    with writing(world.store) as session:
        session.delete(session.scalars(select(RunRecord)).one())
    read: list[int] = []
    with pytest.raises(NotFoundError, match="store has no run"):
        build_index(
            run, settings(world), world.language_model, world.store, progress=lambda done, *_: read.append(done)
        )
    assert read == [], "it is said before the text is read"


def test_until_an_index_is_written_the_one_before_is_there_with_its_search(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> tuple[list[int], object]:
        with Session(world.store) as session:
            run_id = session.scalars(select(RunRecord.id)).one()
            tokens = session.scalar(select(IndexRecord.tokens))
            return experts_with(session, run_id, ["fox"]).tolist(), tokens

    build_index(run, settings(world), world.language_model, world.store)
    before = found()
    assert before[0]
    meanwhile = []

    def fails(*_arguments: object) -> None:
        meanwhile.append(found())
        raise UserError("The disk is full.")

    monkeypatch.setattr(writing_index, "_insert_search", fails)
    with pytest.raises(UserError, match="disk is full"):
        build_index(run, settings(world, tokens=1280), world.language_model, world.store)
    assert [*meanwhile, found()] == [before, before]


def rows_of(store: Engine, table: type[Base]) -> list[tuple[object, ...]]:
    """All rows of a table, without when they were written."""
    columns = [column for column in table.__table__.columns if column.name != "created_at"]
    with store.connect() as connection:
        rows = connection.execute(select(*columns).order_by(*inspect(table).primary_key))
        return [tuple(row) for row in rows]


def test_an_index_in_postgresql_is_the_one_in_sqlite(world: World, run: Run, postgresql_server: Server) -> None:
    other = open_store(postgresql_server.new())
    register_run(run, other)
    for _ in range(2):  # the second in the place of the first
        build_index(run, settings(world), world.language_model, other)
    build_index(run, settings(world), world.language_model, world.store)
    for table in (IndexRecord, ExpertRecord, SequenceRecord, ContextRecord, RoutedRecord):
        rows = rows_of(other, table)
        assert rows
        assert rows == rows_of(world.store, table)
    for word in ("fox", "o"):
        with Session(other) as one, Session(world.store) as two:
            assert sorted(experts_with(one, 1, [word])) == sorted(experts_with(two, 1, [word]))
    with writing(other) as session:
        delete_index(session, 1)
        assert experts_with(session, 1, ["fox"]).tolist() == []
    other.dispose()


def test_on_a_cpu_no_thread_takes_a_core_from_the_products(world: World, run: Run) -> None:
    here, threads = threading.get_ident(), []
    embeddings = world.language_model.module.get_input_embeddings()
    handle = embeddings.register_forward_pre_hook(lambda *_: threads.append(threading.get_ident()))
    build_index(run, settings(world), world.language_model, world.store)
    handle.remove()
    assert set(threads) == {here}
