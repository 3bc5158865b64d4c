"""Indexes against brute force, exact whatever the batches and parts, and what readers see during a rebuild."""

from collections import Counter, defaultdict
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from math import log2
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, text
from sqlalchemy.orm import Session
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from mxd.backend.inference.run_loader import Vocabulary
from mxd.trainer.analysis import effect_search
from mxd.trainer.analysis.effect_search import unit_prices
from mxd.trainer.analysis.indexing import build as build_module
from mxd.trainer.analysis.indexing import statistics as statistics_module
from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.analysis.indexing.examples import RoutedSample, SelectedExamples, TopExamples, sequence_key
from mxd.trainer.analysis.indexing.statistics import (
    ActivePairs,
    ExpertStatistics,
    Floats,
    Ints,
    TokenCounts,
    active_pairs,
)
from mxd.trainer.config.analysis import IndexConfig
from mxd.trainer.data.activation_cache import ActivationCache, filled_cache
from mxd.trainer.data.activations import StreamSpec, capture_layers
from mxd.trainer.data.sequences import sequence_batches
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import token_bytes, token_texts
from mxd.trainer.layers.mxd import Routing
from mxd.trainer.storage.database.column_types import pack_routed, unpack_routed
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import delete_index, open_trainer_database, writing
from mxd.trainer.storage.database.search import experts_with, search_table
from mxd.trainer.storage.database.tables import ExampleRecord, IndexRecord, RoutedRecord, RunRecord, SequenceRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.runs import CONFIGS, World, byte_tokenizer, train_layer
from tests.helpers.servers.postgresql import Server

ACTIVE = np.dtype([("position", "<u2"), ("activation", "<f4"), ("rank", "<u2")])


def settings(world: World, **changes: object) -> IndexConfig:
    defaults = {"text": world.text, "tokens": 640, "top_examples": 3, "examples_per_bin": 2}
    return IndexConfig.model_validate(defaults | changes)


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

    config = IndexConfig(text=world.text, tokens=tokens)
    result = build_index(run, config, world.language_model, world.database, cache=cache)
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


EXPERTS = 5


def batches(scale: Floats, seed: int) -> list[ActivePairs]:
    """Pairs of each batch, sorted by expert; expert 4 is dead, and ``scale`` multiplies the activations of a batch."""
    generator = np.random.default_rng(seed)
    made = []
    for factor in scale:
        expert = np.sort(generator.choice(EXPERTS - 1, size=400, p=[0.7, 0.2, 0.09, 0.01])).astype(np.int32)
        activation = (factor * generator.lognormal(0, 1.5, size=400)).astype(np.float32)
        zeros = np.zeros(400, np.int32)
        made.append(ActivePairs(expert, zeros, zeros.astype(np.uint16), activation, zeros.astype(np.uint16)))
    return made


def counted(parts: list[ActivePairs]) -> ExpertStatistics:
    statistics = ExpertStatistics(EXPERTS)
    for pairs in parts:
        statistics.add(pairs)
    return statistics


def expected(parts: list[ActivePairs]) -> list[float]:
    pairs = ActivePairs.concatenate(parts)
    values = [pairs.activation[pairs.expert == expert] for expert in range(EXPERTS)]
    return [float(np.percentile(it, 99, method="inverted_cdf")) if len(it) else 0.0 for it in values]


@pytest.mark.parametrize("pending", [1, 1000, 1 << 20])
def test_percentiles_are_exact(pending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics_module, "PENDING", pending)
    monkeypatch.setattr(statistics_module, "MIN_TAIL", 8)
    parts = batches(np.ones(200), seed=1)
    statistics = counted(parts)
    assert statistics.percentiles(0.99).tolist() == expected(parts)
    assert len(statistics.tails.value) < 0.06 * 200 * 400
    merged = counted(parts[:50])
    merged.merge(counted(parts[50:]))
    assert merged.percentiles(0.99).tolist() == expected(parts)


def test_a_text_that_becomes_weaker_gets_the_edge_of_a_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics_module, "PENDING", 1)
    monkeypatch.setattr(statistics_module, "MIN_TAIL", 8)
    parts = batches(np.where(np.arange(300) < 10, 1.0, 1e-3), seed=2)
    statistics = counted(parts)
    excess = statistics.percentiles(0.99) - expected(parts)
    assert ((excess >= 0) & (excess <= statistics.highs / 64)).all()


FEW, VOCABULARY = 7, 11
Tokens = list[tuple[int, int]]
"""Pairs of an expert and a token."""


def token_counts(batches: list[Tokens], folder: Path, buffer_size: int) -> TokenCounts:
    counts = TokenCounts(FEW, VOCABULARY, folder, buffer_size)
    for batch in batches:
        expert = np.array([expert for expert, _ in batch], np.int32)
        empty = ActivePairs.empty()
        counts.add(empty._replace(expert=expert), np.array([token for _, token in batch], np.int64))
    return counts


def check(counts: TokenCounts, batches: list[Tokens]) -> None:
    expected = [Counter(token for batch in batches for e, token in batch if e == expert) for expert in range(FEW)]
    for tokens, (top, entropy) in zip(expected, counts.summaries(top=3), strict=True):
        total = sum(tokens.values())
        assert top == sorted(map(list, tokens.items()), key=lambda pair: (-pair[1], pair[0]))[:3]
        assert entropy == pytest.approx(sum(-n / total * log2(n / total) for n in tokens.values()))


pairs = st.tuples(st.integers(0, FEW - 1), st.integers(0, VOCABULARY - 1))


@given(
    batches=st.lists(st.lists(pairs, max_size=30), max_size=8),
    parts=st.lists(st.lists(pairs, max_size=30), max_size=3),
    buffer_size=st.sampled_from([1, 3, 8, 1000]),
)
def test_counts_equal_plain_counting_and_add_up(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Tokens], parts: list[Tokens], buffer_size: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    with closing(token_counts(batches, folder, buffer_size)) as counts:
        for part in parts:
            with closing(token_counts([part], folder, buffer_size=1000)) as other:
                for _, _, words in other.chunks():
                    counts.add_run(words)
        check(counts, batches + parts)


def test_counts_above_16_bits_and_small_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics_module, "MAX_COUNT", 4)
    monkeypatch.setattr(statistics_module, "COUNT_BITS", 2)
    monkeypatch.setattr(statistics_module, "WORDS_PER_CHUNK", 5)
    monkeypatch.setattr(statistics_module, "MAX_RUNS", 2)  # runs on disk are merged
    rng = np.random.default_rng(0)
    batches = [[(int(e) % FEW, int(t) % 3) for e, t in rng.integers(0, 100, (50, 2))] for _ in range(6)]
    with closing(token_counts(batches, tmp_path, buffer_size=40)) as counts:
        check(counts, batches)


SELECTED, LENGTH = 6, 5


def random_routing(seed: int, sequences: int) -> Routing:
    """Few distinct activations, so that many are equal, over several powers of two; some are 0."""
    rng = np.random.default_rng(seed)
    tokens = sequences * LENGTH
    activations_TK = rng.choice([0.0, 0.01, 0.3, 0.5, 0.75, 1.0, 6.0], (tokens, 3)).astype(np.float32)
    indices_TK = np.stack([rng.permutation(SELECTED)[:3] for _ in range(tokens)])
    return Routing(torch.from_numpy(activations_TK), torch.from_numpy(indices_TK))


def select_pairs(routing: Routing, sequence_ids_S: Ints) -> ActivePairs:
    rows = (sequence_ids_S[:, None] * LENGTH + np.arange(LENGTH)).reshape(-1)
    chosen = Routing(routing.activations_TK[rows], routing.indices_TK[rows])
    return active_pairs(chosen, LENGTH, sequence_ids_S)[0]


def collect(
    routing: Routing, batches: list[Ints], examples_per_bin: int, prune_at: int
) -> tuple[TopExamples, ExpertStatistics, RoutedSample]:
    statistics, sample = ExpertStatistics(SELECTED), RoutedSample(seed=1, context_length=LENGTH, tokens=7 * LENGTH)
    examples = TopExamples(SELECTED, top=3, examples_per_bin=examples_per_bin, seed=1, prune_at=prune_at)
    for sequence_ids_S in batches:
        pairs = select_pairs(routing, sequence_ids_S)
        examples.add(pairs, statistics, statistics.add(pairs))
        if examples.needs_pruning:
            examples.prune(statistics)
        sample.add(pairs, sequence_ids_S[:, None].repeat(LENGTH, axis=1), sequence_ids_S)
    return examples, statistics, sample


def same(left: tuple[SelectedExamples, ActivePairs], right: tuple[SelectedExamples, ActivePairs]) -> bool:
    """Compare the selected examples and their active positions."""
    (selected, pairs), (others, other_pairs) = left, right
    names = ("expert", "bin", "rank", "sequence", "position", "activation")
    columns = all(np.array_equal(getattr(selected, name), getattr(others, name)) for name in names)
    return columns and all(
        pairs.position[a:b].tolist() == other_pairs.position[c:d].tolist()
        for a, b, c, d in zip(selected.start, selected.end, others.start, others.end, strict=True)
    )


@given(
    seed=st.integers(0, 1000), sequences=st.integers(1, 40), examples_per_bin=st.integers(0, 2), parts=st.integers(1, 3)
)
def test_examples_do_not_depend_on_batches_parts_and_pruning(
    seed: int, sequences: int, examples_per_bin: int, parts: int
) -> None:
    routing = random_routing(seed, sequences)
    whole, statistics, sample = collect(routing, [np.arange(sequences)], examples_per_bin, prune_at=1 << 20)
    expected = whole.prune(statistics), whole.pairs
    several = [
        collect(routing, [np.array([number]) for number in range(part, sequences, parts)], examples_per_bin, prune_at=4)
        for part in range(parts)
    ]
    (examples, together, own), *others = several
    for _, other, routed in others:
        together.merge(other)
        own.merge(routed)
    for other_examples, other, _ in others:
        other_examples.prune(other)
    selected = examples.merge([other_examples.pairs for other_examples, *_ in others], together)
    assert same(expected, (selected, examples.pairs))
    for name in ("active_tokens", "largest", "histogram_NB", "exponents", "highs", "means"):
        assert np.array_equal(getattr(statistics, name), getattr(together, name)), name
    check_sample(sample, routing, min(7, sequences))
    assert own.sequences == sample.sequences
    for sequence in sample.sequences:
        assert own.token_ids[sequence].tolist() == [sequence] * LENGTH
        assert all(map(np.array_equal, own.routed[sequence], sample.routed[sequence]))


def check_sample(sample: RoutedSample, routing: Routing, size: int) -> None:
    """Experts of each token are those of the routing, strongest first."""
    assert len(sample.sequences) == size
    for sequence in sample.sequences:
        counts, experts = sample.routed[sequence]
        tokens = slice(sequence * LENGTH, (sequence + 1) * LENGTH)
        activations_LN = torch.zeros(LENGTH, SELECTED)
        activations_LN.scatter_(1, routing.indices_TK[tokens], routing.activations_TK[tokens])
        for active_N, listed in zip(activations_LN, np.split(experts, counts.cumsum()[:-1]), strict=True):
            assert active_N[listed].tolist() == sorted(active_N[active_N > 0].tolist(), reverse=True)


def test_the_seed_chooses_the_sequences() -> None:
    assert sequence_key(0, 5) != sequence_key(1, 5)


def test_ranks_follow_the_activations_not_the_gate() -> None:
    """A gate without a top-k has its experts by id."""
    routing = Routing(torch.tensor([[0.0, 2.0, 0.5, 3.0], [1.0, 0.0, 4.0, 0.0]]), torch.arange(4).expand(2, 4))
    pairs, token_P = active_pairs(routing, 1, np.arange(2))
    ranks = {(int(t), int(e)): int(r) for t, e, r in zip(token_P, pairs.expert, pairs.rank, strict=True)}
    assert ranks == {(0, 1): 1, (0, 2): 2, (0, 3): 0, (1, 0): 1, (1, 2): 0}


def test_random_examples_are_a_fair_sample() -> None:
    """Each of 400 equal pairs is drawn about as often as another over many seeds."""
    routing = Routing(torch.ones(400, 1), torch.zeros(400, 1, dtype=torch.int64))
    pairs, _ = active_pairs(routing, LENGTH, np.arange(80))
    drawn = np.zeros(400)
    for seed in range(500):
        statistics = ExpertStatistics(1)
        examples = TopExamples(1, top=1, examples_per_bin=20, seed=seed)
        examples.add(pairs, statistics, statistics.add(pairs))
        selected = examples.prune(statistics)
        random = selected.bin > 0
        drawn[selected.sequence[random] * LENGTH + selected.position[random]] += 1
    # 25 expected of each; a standard deviation is 5.
    assert drawn.sum() == 500 * 20
    assert drawn.std() == pytest.approx(5, rel=0.2)
    assert drawn.max() < 25 + 5 * 5


@pytest.mark.parametrize("num_experts", [1 << 16, (1 << 16) + 1])
def test_packing_is_lossless(num_experts: int) -> None:
    counts, experts = np.array([0, 2, 1]), np.array([0, num_experts - 1, 7])
    unpacked = unpack_routed(*pack_routed(counts, experts, num_experts), num_experts)
    assert [part.tolist() for part in unpacked] == [counts.tolist(), experts.tolist()]
