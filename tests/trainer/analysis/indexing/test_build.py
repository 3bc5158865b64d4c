"""``build_index`` of a text and of a cache against brute force, and what readers see during a rebuild."""

from collections import Counter, defaultdict
from copy import deepcopy
from dataclasses import replace
from math import log2
from pathlib import Path

import numpy as np
import pytest
import torch
from sqlalchemy import select, text
from sqlalchemy.orm import Session
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from mxd.backend.inference.run_loader import Vocabulary
from mxd.trainer.analysis import effect_search
from mxd.trainer.analysis.effect_search import unit_prices
from mxd.trainer.analysis.indexing import build as build_module
from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.config import IndexConfig
from mxd.trainer.data.activation_cache import ActivationCache, filled_cache
from mxd.trainer.data.activations import StreamSpec, capture_layers
from mxd.trainer.data.sequences import sequence_batches
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import token_bytes, token_texts
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import delete_index, open_trainer_database, writing
from mxd.trainer.storage.database.search import experts_with, search_table
from mxd.trainer.storage.database.tables import ExampleRecord, IndexRecord, RoutedRecord, RunRecord, SequenceRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.training.train import train_layer
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.runs import CONFIGS, World, byte_tokenizer
from tests.helpers.servers.postgresql import Server

ACTIVE = np.dtype([("position", "<u2"), ("activation", "<f4"), ("rank", "<u2")])


def settings(world: World, **changes: object) -> IndexConfig:
    return IndexConfig.model_validate(
        {"text": world.text, "tokens": 640, "top_examples": 3, "examples_per_bin": 2} | changes
    )


class BruteForce:
    """All active pairs, in plain Python lists."""

    def __init__(self, world: World, run: Run, config: IndexConfig) -> None:
        (self.ids_SL,) = sequence_batches(
            config.text, world.language_model.tokenizer, config.tokens, config.seed, "shuffled", batch=10_000
        )
        with torch.no_grad():
            routing = run.layer.route(capture_layers(world.language_model, [1], self.ids_SL)[1].input_TI)
        self.active: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
        self.ranks: dict[tuple[int, int, int], int] = {}
        for token, (activations, experts) in enumerate(zip(*(values.tolist() for values in routing), strict=True)):
            for rank, (activation, expert) in enumerate(zip(activations, experts, strict=True)):
                if activation > 0:
                    self.ranks[expert, *divmod(token, config.text.context_length)] = rank
                    self.active[expert].append((*divmod(token, config.text.context_length), activation))

    def largest(self, expert: int, count: int) -> list[tuple[int, int, float]]:
        peaks: dict[int, tuple[int, int, float]] = {}
        for sequence, position, activation in self.active[expert]:
            if sequence not in peaks or activation > peaks[sequence][2]:
                peaks[sequence] = (sequence, position, activation)
        return sorted(peaks.values(), key=lambda row: (-row[2], row[0]))[:count]


@pytest.mark.parametrize("tokens_per_batch", [48, 1024])
def test_the_index_equals_brute_force(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, tokens_per_batch: int
) -> None:
    monkeypatch.setattr(build_module, "TOKENS_PER_BATCH", tokens_per_batch)
    config = settings(world, seed=tokens_per_batch)
    result = world.index(run, seed=tokens_per_batch)
    brute = BruteForce(world, run, config)
    assert result.tokens == brute.ids_SL.size == 640
    assert result.active_experts == len(brute.active)
    experts, examples = world.rows(ExpertRecord), world.rows(ExampleRecord)
    assert [row.expert for row in experts] == list(range(40))
    for row in experts:
        check_statistics(row, brute)
        check_examples([example for example in examples if example.expert == row.expert], row, brute, config)
    stored = {record.sequence: record.token_ids for record in world.rows(SequenceRecord)}
    sampled = {record.sequence for record in world.rows(RoutedRecord)}
    assert stored.keys() == {example.sequence for example in examples} | sampled
    assert sampled == set(range(640 // config.text.context_length))
    for sequence, token_ids in stored.items():
        assert np.frombuffer(token_ids, "<u4").tolist() == brute.ids_SL[sequence].tolist()


def test_gaps_in_token_ids_move_no_occurrence_to_another_expert(world: World) -> None:
    """The tokenizer has 258 tokens. The id of 'e' is 900, and the embedding has 1,024 rows."""
    config = deepcopy(CONFIGS["llama"])
    config.vocab_size = 1024
    vocabulary = byte_tokenizer().get_vocab() | {"e": 900}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer, backend.decoder = (part.ByteLevel() for part in (pre_tokenizers, decoders))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    assert len(tokenizer) == 257
    model = LanguageModel(AutoModelForCausalLM.from_config(config, dtype=torch.float32), tokenizer, "gaps")
    gapped = replace(world, language_model=model)
    run = gapped.train()
    gapped.index(run)
    brute = BruteForce(gapped, run, settings(gapped))
    assert 900 in brute.ids_SL
    for row in gapped.rows(ExpertRecord):
        check_statistics(row, brute)
    assert token_bytes(tokenizer)[900] == b"e"  # type: ignore[index]
    assert Vocabulary(tokenizer).exact_matches("e") == [vocabulary["E"], 900]


def check_statistics(row: ExpertRecord, brute: BruteForce) -> None:
    active = brute.active.get(row.expert, [])
    values = [activation for *_, activation in active]
    assert row.active_tokens == len(active)
    assert row.density == pytest.approx(len(active) / 640)
    if not active:
        assert (row.mean_activation, row.max_activation, row.p99, row.entropy, row.histogram_high) == (0, 0, 0, 0, 0)
        assert (row.top_tokens, row.bins) == ([], [])
        return
    assert row.mean_activation == pytest.approx(np.mean(values))
    assert row.max_activation == max(values)
    high = 2.0 ** np.frexp(max(values))[1]
    assert row.histogram_high == high
    assert row.histogram == np.histogram(values, bins=64, range=(0, high))[0].tolist()
    tokens = Counter(int(brute.ids_SL[sequence, position]) for sequence, position, _ in active)
    assert row.top_tokens == sorted(map(list, tokens.items()), key=lambda pair: (-pair[1], pair[0]))[:12]
    assert row.entropy == pytest.approx(sum(-n / len(active) * log2(n / len(active)) for n in tokens.values()))
    assert row.p99 == np.percentile(np.array(values, np.float32), 99, method="inverted_cdf")
    assert sum(int(count) for *_, count in row.bins) == len(active)
    for low, above, count in row.bins:
        assert sum(low <= value < above for value in values) == count


def check_examples(examples: list[ExampleRecord], row: ExpertRecord, brute: BruteForce, config: IndexConfig) -> None:
    top = [(e.sequence, e.position, e.activation) for e in examples if e.bin == 0]
    assert top == brute.largest(row.expert, config.top_examples)
    active = set(brute.active.get(row.expert, []))
    for example in examples:
        assert (example.sequence, example.position, example.activation) in active
        stored = np.frombuffer(example.active, ACTIVE)
        expected = [(p, c) for s, p, c in sorted(active) if s == example.sequence]
        assert stored["position"].tolist() == [position for position, _ in expected]
        np.testing.assert_allclose(stored["activation"], [c for _, c in expected], rtol=1e-6)
        assert stored["rank"].tolist() == [brute.ranks[row.expert, example.sequence, p] for p, _ in expected]
    for number, (low, high, count) in enumerate(row.bins, start=1):
        in_bin = [example for example in examples if example.bin == number]
        assert [example.rank for example in in_bin] == list(range(min(config.examples_per_bin, int(count))))
        assert all(low <= example.activation < high for example in in_bin)


def test_text_around_the_peak_can_be_searched(world: World, run: Run) -> None:
    world.index(run)
    with Session(world.database) as session:
        run_id = session.scalars(select(RunRecord.id)).one()
        table = search_table(run_id)
        matching = list(session.scalars(text(f"SELECT rowid FROM {table} WHERE {table} MATCH 'fox'")))
        assert matching
        for expert in matching:
            top = (ExampleRecord.expert == expert, ExampleRecord.bin == 0)
            numbers = session.scalars(select(ExampleRecord.sequence).where(*top)).all()
            sequences = [session.get_one(SequenceRecord, (run_id, number)).token_ids for number in numbers]
            ids = [np.frombuffer(token_ids, "<u4").tolist() for token_ids in sequences]
            assert any("fox" in "".join(token_texts(run.tokenizer, each)) for each in ids)


def test_a_copied_run_is_registered(world: World, run: Run) -> None:
    with writing(world.database) as session:
        session.delete(session.scalars(select(RunRecord)).one())
    world.index(run)
    assert [record.status for record in world.rows(RunRecord)] == ["finished"]


def test_readers_see_the_previous_index_and_its_search_until_the_new_one_is_written(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def visible() -> tuple[list[int], object]:
        with Session(world.database) as session:
            run_id = session.scalars(select(RunRecord.id)).one()
            tokens = session.scalar(select(IndexRecord.tokens))
            return experts_with(session, run_id, ["fox"]).tolist(), tokens

    world.index(run)
    before = visible()
    assert before[0]
    meanwhile = []

    def fails(*_arguments: object) -> None:
        meanwhile.append(visible())
        raise UserError("The disk is full.")

    monkeypatch.setattr(build_module, "index_search", fails)
    with pytest.raises(UserError, match="disk is full"):
        world.index(run, tokens=1280)
    with pytest.raises(CancelledError):
        callbacks = Callbacks(is_cancelled=lambda: True)
        build_index(run, settings(world), world.language_model, world.database, callbacks=callbacks)
    assert [*meanwhile, visible()] == [before, before]


def test_postgresql_and_sqlite_store_the_same_index(world: World, run: Run, postgresql_server: Server) -> None:
    other = open_trainer_database(postgresql_server.new())
    register_run(run, other)
    both = (world, replace(world, database=other))
    for tokens in (160, 640):  # the second replaces the first
        for each in both:
            each.index(run, tokens=tokens)
    for table in (IndexRecord, ExpertRecord, SequenceRecord, ExampleRecord, RoutedRecord):
        columns = [column.name for column in table.__table__.columns if column.name != "created_at"]
        here, there = ([[getattr(row, name) for name in columns] for row in each.rows(table)] for each in both)
        assert here == there != []
    for word in ("fox", "o"):
        with Session(other) as one, Session(world.database) as two:
            assert sorted(experts_with(one, 1, [word])) == sorted(experts_with(two, 1, [word]))
    with writing(other) as session:
        delete_index(session, 1)
        assert experts_with(session, 1, ["fox"]).tolist() == []
    other.dispose()


def test_steerability_is_the_price_of_one_unit_and_later_searches_need_no_backward_pass(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.index(run)
    prices = unit_prices(world.language_model, [Run.load("small", world.data)])["small"]
    rows = world.rows(ExpertRecord)
    steerabilities = [row.steerability or 0.0 for row in rows]
    assert steerabilities == pytest.approx(prices.tolist(), rel=1e-3)
    assert [value > 0 for value in steerabilities] == [row.p99 > 0 for row in rows]
    monkeypatch.setattr(effect_search, "unrelated_readings", pytest.fail)
    world.language_model.unit_prices.clear()
    again = unit_prices(world.language_model, [Run.load("small", world.data)])["small"]
    torch.testing.assert_close(again, prices, rtol=1e-3, atol=0)


def test_a_language_model_without_gradients_leaves_steerability_empty(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.write_prices([1.0] * run.layer.config.num_experts)

    def refuse(*_: object) -> None:
        raise UserError("4 residual streams")

    monkeypatch.setattr(build_module, "activation_prices", refuse)
    world.index(run)
    assert Run.load("small", world.data).prices == {}
    assert {row.steerability for row in world.rows(ExpertRecord)} == {None}


@pytest.fixture
def cache(world: World) -> ActivationCache:
    return filled_cache(world.data / "cache", StreamSpec.from_configs([world.config()]), world.language_model)


@pytest.mark.parametrize(("tokens", "per_batch"), [(1280, 48), (640, 1024)])
def test_the_index_of_a_cache_equals_brute_force(
    world: World, cache: ActivationCache, monkeypatch: pytest.MonkeyPatch, tokens: int, per_batch: int
) -> None:
    monkeypatch.setattr(build_module, "TOKENS_PER_BATCH", per_batch)
    run = world.train()
    ids_SL = np.concatenate(list(cache.token_ids(world.text, world.language_model.tokenizer)))
    inputs_TI = torch.cat([cache.activations(1, index).input_TI for index in range(3)])
    captured = capture_layers(world.language_model, [1], ids_SL)[1].input_TI
    assert torch.equal(inputs_TI, captured.bfloat16().float()), "token ids belong to the activations"

    result = build_index(
        run, IndexConfig(text=world.text, tokens=tokens), world.language_model, world.database, cache=cache
    )
    with torch.no_grad():
        activations_TK, indices_TK = run.layer.route(inputs_TI[:tokens])
    active_N = torch.bincount(indices_TK[activations_TK > 0], minlength=40)
    assert result.tokens == tokens
    assert [record.tokens for record in world.rows(IndexRecord)] == [tokens]
    assert [record.active_tokens for record in world.rows(ExpertRecord)] == active_N.tolist()


def test_the_text_of_a_cache_may_move(world: World, cache: ActivationCache) -> None:
    train_layer(world.config(), world.data, world.database, world.language_model, cache=cache)
    old = Path(world.text.dataset)
    (old.parent / "moved").mkdir()
    moved = world.text.model_copy(update={"dataset": str(old.rename(old.parent / "moved" / old.name))})
    config = IndexConfig(text=moved, tokens=640)
    run = Run.load("small", world.data)
    assert build_index(run, config, world.language_model, world.database, cache=cache).tokens == 640
    with pytest.raises(UserError, match="holds 1,536 tokens"):
        cache.check_text(moved, 10_000)
    with pytest.raises(UserError, match="another dataset settings"):
        cache.check_text(moved.model_copy(update={"context_length": 32}), 100)
