"""Contrasts of texts and recurrence over runs: true differences and renumbered experts are found, others are not."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from mxd.trainer.analysis.contrast import (
    DocumentCounts,
    NamedText,
    contrast,
    contrast_in_steps,
    pearson3_p_values,
    q_values,
    rate_ratios,
    text_of_file,
    text_of_kind,
)
from mxd.trainer.analysis.recurrence import measure_recurrence, save_recurrence
from mxd.trainer.analysis.results import ChanceLevel, Contrast, ExpertRecurrence, Match, Recurrence, stored_matches
from mxd.trainer.config.analysis import ContrastConfig, RecurrenceConfig
from mxd.trainer.config.training import TextConfig
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.inference.routing import route
from mxd.trainer.layers.mxd import SparseLayer
from mxd.trainer.storage.database.open import delete_index, sqlite_url, writing
from mxd.trainer.storage.database.tables import MeasurementRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.callbacks import Callbacks, completed
from tests.helpers.databases import made_up_database
from tests.helpers.runs import World, random_layer, run_of, stop_after

FEW = ContrastConfig(min_tokens=5, min_units=2, shown=100)
WORDS = (("red", "fox", "ran", "the"), ("blue", "dog", "sat", "very"))


def random_texts(words: tuple[str, ...], seed: int, documents: int = 40) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(words, size=generator.integers(2, 9))) for _ in range(documents)]


def compare(world: World, a: list[str], b: list[str], config: ContrastConfig = FEW) -> Contrast:
    return contrast(run_of(world, "run", 1), NamedText("A", a), NamedText("B", b), config, world.language_model)


def test_a_result_says_why_it_is_not_reliable(world: World) -> None:
    result = compare(world, random_texts(WORDS[0], 0), random_texts(WORDS[1], 1))
    chance = ChanceLevel(shuffles=20, mean_found=44.5, most_found=1450, shuffles_with_any=9, covered=0.91)
    found = replace(result, unit="document", tested=900, found_a=187, found_b=299, chance=chance)
    assert found.warnings == ("Chance may explain more than 5 % of the list. Do not rely on it; use more documents.",)
    assert found.control.endswith(
        ": 44.5 experts found on average, 1,450 at most; 91.0 % of the 95 % intervals contain the true ratio of 1."
    )
    assert replace(found, chance=replace(chance, mean_found=24)).warnings == ()
    none = replace(found, found_a=0, found_b=0, tested=0, chance=replace(chance, mean_found=0, most_found=0))
    assert (none.warnings, none.control.split(": ")[1]) == ((), "nothing to test.")
    few, sequences = (replace(none, a=replace(result.a, units=9), unit=unit) for unit in ("document", "sequence"))
    assert few.warnings[0].startswith("Few documents: 9 in A, 40 in B.")
    assert sequences.warnings[0].startswith("Not reliable:")
    expert = result.experts[0]
    cases = {(12, 1): "only 1 document in B", (1, 1): "only 1 document in A and B", (12, 2): None, (12, 0): None}
    for (a, b), warning in cases.items():
        assert replace(expert, units_a=a, units_b=b).warning("document") == warning


def test_counts_equal_the_routing_of_each_document(world: World) -> None:
    a, b = ([text[:12] for text in random_texts(words, seed)] for seed, words in enumerate(WORDS))
    result = compare(world, a, b)
    run = run_of(world, "run", 1)
    for texts, side in ((a, "a"), (b, "b")):
        active, documents, tokens = Counter[int](), Counter[int](), 0
        for text in texts:
            routed = [token for token in route(world.language_model, run, text).tokens if not token.start]
            experts = [expert.expert for token in routed for expert in token.experts]
            active.update(experts)
            documents.update(set(experts))
            tokens += len(routed)
        assert getattr(result, side).tokens == tokens
        assert getattr(result, side).documents == len(texts)
        for each in result.experts:
            assert getattr(each, f"active_{side}") == active[each.expert]
            assert getattr(each, f"units_{side}") == documents[each.expert]
            assert getattr(each, f"density_{side}") == pytest.approx(active[each.expert] / tokens)


def test_other_words_are_found_and_shuffled_documents_are_not(world: World) -> None:
    a, b = (random_texts(words, seed) for seed, words in enumerate(WORDS))
    result = compare(world, a, b)
    assert result.unit == "document"
    assert result.found_a and result.found_b
    assert result.chance is not None and result.chance.mean_found < 0.5
    assert result.chance.covered > 0.9
    mixed = [*a, *b]
    order = np.random.default_rng(0).permutation(len(mixed))
    halves = [[mixed[index] for index in part] for part in np.array_split(order, 2)]
    shuffled = compare(world, halves[0], halves[1])
    assert shuffled.found_a + shuffled.found_b <= 1


def test_examples_show_the_strongest_tokens_of_both_texts(world: World) -> None:
    a, b = (random_texts(words, seed) for seed, words in enumerate(WORDS))
    result = compare(world, a, b)
    assert set(result.examples) == {each.expert for each in result.experts if each.is_found}
    for both in result.examples.values():
        assert both.a or both.b
        for examples in (both.a, both.b):
            assert len(examples) <= FEW.examples
            strengths = [example.activation for example in examples]
            assert strengths == sorted(strengths, reverse=True)
            for example in examples:
                assert max(value for _, value, _ in example.active) == pytest.approx(example.activation)
                assert example.position in {place for place, _, _ in example.active}
                assert max(place for place, _, _ in example.active) < len(example.token_ids)


def test_steps_of_any_size_give_one_result(world: World) -> None:
    a, b = (NamedText(name, random_texts(words, 3)) for name, words in zip("AB", WORDS, strict=True))
    run = run_of(world, "run", 1)

    def measured(sequences: int) -> Contrast:
        seen: list[tuple[int, int]] = []
        steps = contrast_in_steps(run, a, b, FEW, world.language_model, sequences)
        result = completed(steps, Callbacks(on_progress=lambda done, total, _: seen.append((done, total))))
        assert seen[0][0] == 0
        assert seen[-1][0] == seen[-1][1]
        return result()

    results = [measured(sequences) for sequences in (1, 7, 100)]
    one, other = ([(each.expert, each.active_a, each.active_b) for each in it.experts] for it in results[:2])
    assert one == other
    assert results[1].found_a == results[2].found_a


def test_few_documents_are_compared_by_sequence(world: World) -> None:
    long = [" ".join(random_texts(words, 5)) for words in WORDS]
    result = compare(world, long[:1], long[1:])
    assert result.unit == "sequence"
    assert result.a.documents == 1 and result.a.units > 10
    with pytest.raises(UserError, match="Text A is too short"):
        compare(world, ["red"], long)


def test_unusable_texts_are_one_clear_error_and_cancelling_is_possible(world: World, tmp_path: Path) -> None:
    texts = [random_texts(words, 5) for words in WORDS]
    with pytest.raises(UserError, match="Text B is empty"):
        compare(world, texts[0], [""])
    a, b = (NamedText(name, each) for name, each in zip("AB", texts, strict=True))
    with pytest.raises(CancelledError):
        contrast(run_of(world, "run", 1), a, b, FEW, world.language_model, stop_after(1))
    with pytest.raises(UserError, match="No expert is active on 9999 tokens"):
        compare(world, texts[0], texts[1], ContrastConfig(min_tokens=9999))
    path = tmp_path / "kinds.jsonl"
    path.write_text("".join(f'{{"kind": "{kind}", "text": "{kind} fox"}}\n' for kind in ("red", "blue") * 3))
    text = TextConfig(dataset=str(path))
    assert text_of_kind(text, "red", "kind", 0).documents == ["red fox"] * 3
    assert len(list(text_of_file(text, 0).documents)) == 6
    with pytest.raises(UserError, match=r"No text of kind 'reed'.* Did you mean 'red'"):
        text_of_kind(text, "reed", "kind", 0)


def counted(tokens_D: NDArray[np.int64], active_DN: NDArray[np.int64]) -> DocumentCounts:
    document_P, expert_P = np.nonzero(active_DN)
    count_P = active_DN[document_P, expert_P]
    return DocumentCounts(tokens_D, document_P, expert_P, count_P, count_P.astype(np.float64), active_DN.shape[1])


def simulated(
    sizes: tuple[int, int], experts: int, ratio: float, seed: int
) -> tuple[DocumentCounts, NDArray[np.bool_]]:
    """Documents with unequal lengths and bursts: the density of a document varies by a gamma factor."""
    generator = np.random.default_rng(seed)
    tokens_D = generator.integers(60, 400, sum(sizes))
    in_a_D = np.arange(sum(sizes)) < sizes[0]
    density_N = np.geomspace(3e-4, 3e-2, experts)
    burst_DN = generator.gamma(0.25, 4.0, (len(tokens_D), experts))
    mean_DN = tokens_D[:, None] * density_N * burst_DN * np.where(in_a_D, ratio, 1.0)[:, None]
    return counted(tokens_D, np.minimum(generator.poisson(mean_DN), tokens_D[:, None])), in_a_D


@pytest.mark.parametrize("sizes", [(60, 60), (20, 200), (150, 30)])
@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_intervals_include_the_true_ratio_and_without_a_difference_hardly_an_expert_is_found(
    sizes: tuple[int, int], ratio: float
) -> None:
    ratios = rate_ratios(*simulated(sizes, experts=2000, ratio=ratio, seed=7))
    chosen_N = ratios.enough(min_tokens=20, min_units=10)
    assert chosen_N.sum() > 1000
    covered_N = (ratios.low_N <= np.log(ratio)) & (np.log(ratio) <= ratios.high_N)
    assert covered_N[chosen_N].mean() >= 0.93
    if ratio == 1:
        p_values = ratios.p_value_N[chosen_N]
        assert (p_values <= 0.05).mean() <= 0.055
        assert (p_values <= 0.001).mean() <= 0.002
        assert (q_values(p_values) <= 0.05).sum() <= 1


def test_swapped_texts_invert_the_ratio() -> None:
    counts, in_a_D = simulated((40, 90), experts=200, ratio=2.0, seed=1)
    one, other = rate_ratios(counts, in_a_D), rate_ratios(counts, ~in_a_D)
    np.testing.assert_allclose(one.log_ratio_N, -other.log_ratio_N, equal_nan=True, atol=1e-12)
    np.testing.assert_allclose(one.low_N, -other.high_N, equal_nan=True, atol=1e-12)
    np.testing.assert_allclose(one.p_value_N, other.p_value_N, rtol=1e-6)


def test_the_p_value_is_close_to_that_of_all_assignments() -> None:
    tokens_D = np.array([50, 80, 60, 100, 90, 70, 40, 110, 65, 75, 85, 95])
    active_D = np.array([9, 7, 12, 10, 8, 2, 0, 5, 1, 3, 0, 6])
    residual_D = active_D - active_D.sum() / tokens_D.sum() * tokens_D
    sums = np.array([residual_D[list(chosen)].sum() for chosen in combinations(range(12), 5)])
    assert len(sums) == comb(12, 5)
    observed = residual_D[:5].sum()
    exact = 2 * min((sums >= observed - 1e-9).mean(), (sums <= observed + 1e-9).mean())
    ratios = rate_ratios(counted(tokens_D, active_D[:, None]), np.arange(12) < 5)
    assert 0.5 * exact < ratios.p_value_N[0] < 3 * exact < 0.02


def test_the_heavy_tail_of_a_rare_expert_is_not_normal() -> None:
    # Binomial(10, 0.1): standardised 5 successes, 0.00091 with half the probability of 5 itself.
    z, skewness = np.array([4.0 / 0.9**0.5]), np.array([0.8 / 0.9**0.5])
    one_sided = pearson3_p_values(z, skewness)[0] / 2
    assert one_sided == pytest.approx(0.0009, rel=0.5)
    assert pearson3_p_values(z, np.zeros(1))[0] / 2 < 2e-5
    assert pearson3_p_values(-z, -skewness)[0] == pytest.approx(2 * one_sided)


def test_an_expert_that_one_text_lacks_has_a_finite_interval() -> None:
    tokens_D = np.full(40, 100)
    active_DN = np.zeros((40, 3), np.int64)
    active_DN[:20, 0] = 5
    active_DN[:, 1] = 100
    ratios = rate_ratios(counted(tokens_D, active_DN), np.arange(40) < 20)
    assert 0 < ratios.low_N[0] < ratios.log_ratio_N[0] < ratios.high_N[0] < np.inf
    assert ratios.p_value_N[0] < 1e-6
    assert ratios.log_ratio_N[1] == pytest.approx(0) and ratios.p_value_N[1] == 1
    assert ratios.p_value_N[2] == 1 and not ratios.enough(1, 2)[2]


def test_q_values_follow_benjamini_and_hochberg() -> None:
    p_values = np.array([0.01, 0.04, 0.03, 0.005, 0.9])
    np.testing.assert_allclose(q_values(p_values), [0.025, 0.05, 0.05, 0.025, 0.9])


EXPERTS = 40


def with_layer(world: World, name: str, layer: SparseLayer) -> Run:
    run = run_of(world, name)
    run.__dict__["layer"] = layer
    return run


def layer_of(seed: int = 0) -> SparseLayer:
    return random_layer(widths=(16, 20, 16), num_experts=EXPERTS, seed=seed)


def renumbered(layer: SparseLayer, order_N: torch.Tensor) -> SparseLayer:
    """A copy in which expert i is the original's expert ``order_N[i]``."""
    copy = layer_of()
    values = layer.state_dict()
    values |= {key: value[order_N] for key, value in values.items() if value.ndim and len(value) == EXPERTS}
    copy.load_state_dict(values)
    return copy


def test_renumbered_experts_are_found_again_and_others_are_not(world: World) -> None:
    layer = layer_of()
    order_N = torch.randperm(EXPERTS, generator=torch.Generator().manual_seed(3))
    run = with_layer(world, "run", layer)
    others = [
        with_layer(world, "renumbered", renumbered(layer, order_N)),
        with_layer(world, "random", layer_of(seed=9)),
    ]
    config = RecurrenceConfig(text=world.text, tokens=1600)
    result = measure_recurrence(run, others, config, world.language_model)
    assert len(result.experts) > 5
    for expert in result.experts:
        assert int(order_N[expert.matches[0].expert]) == expert.expert
        found = expert.matches[0]
        measures = (found.firing_cosine, found.writing_cosine, found.firing_low, found.firing_high)
        assert found.mutual and measures == pytest.approx((1, 1, 1, 1), abs=1e-4)
        unlike = expert.matches[1]
        assert unlike.firing_low <= unlike.firing_cosine + 1e-6 <= unlike.firing_high + 2e-6
    same, different = result.runs
    assert same.firing_cosine > same.chance_firing_cosine
    assert same.found_again.value > 0.8 > different.found_again.value
    assert same.chance < 0.2
    in_both = [expert.found_in == 2 for expert in result.experts]
    assert result.found_in_all.value == pytest.approx(sum(in_both) / len(in_both))
    assert result == measure_recurrence(run, others, config, world.language_model)


def test_the_match_of_a_copied_expert_is_mutual_for_one_of_the_copies(world: World) -> None:
    layer = layer_of()
    order_N = torch.arange(EXPERTS)
    order_N[1::2] = order_N[::2]
    run, original = with_layer(world, "run", renumbered(layer, order_N)), with_layer(world, "original", layer)
    config = RecurrenceConfig(text=world.text, tokens=1600)
    experts = measure_recurrence(run, [original], config, world.language_model).experts
    found = [expert.expert for expert in experts if expert.matches[0].mutual]
    assert found
    assert len({int(order_N[expert]) for expert in found}) == len(found)


def test_runs_of_different_layers_and_rare_experts_are_refused(world: World) -> None:
    run = with_layer(world, "run", layer_of())
    above = run_of(world, "above", 2)
    config = RecurrenceConfig(text=world.text, tokens=320)
    with pytest.raises(UserError, match=r"'above' replaces layer 2, 'run' layer 1\. Choose runs of one layer\."):
        measure_recurrence(run, [above], config, world.language_model)
    few = config.model_copy(update={"min_tokens": 1000})
    with pytest.raises(UserError, match="No expert of 'run' is active on 1000 tokens"):
        measure_recurrence(run, [run], few, world.language_model)


CONFIG = RecurrenceConfig(text=TextConfig(dataset="held-out.jsonl"), tokens=4100)
MATCH = Match("seed-b", 7, 0.5, 0.25, 0.375, 0.625, 0.125, 0.0, mutual=True)


def result(run: str, *matches: Match) -> Recurrence:
    return Recurrence(
        run=run,
        num_experts=160,
        tokens=4096,
        min_tokens=20,
        runs=(),
        found_in_all=Interval(1.0, 1.0, 1.0),
        experts=(ExpertRecurrence(3, 40, matches),),
    )


def test_matches_are_replaced_and_deleted_with_the_index(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, sqlite_url(tmp_path))
    for name in ("second", "unknown"):
        assert not save_recurrence(database, result(name, MATCH), CONFIG), "it has no index"
    other = Match("seed-a", 2, 0.5, 0.25, 0.375, 0.625, 0.75, 0.0, mutual=True)
    assert save_recurrence(database, result("first", MATCH, other), CONFIG)
    with Session(database) as session:
        assert stored_matches(session, 1, 3) == (other, MATCH)
        assert [match.found for match in stored_matches(session, 1, 3)] == [False, True]
        assert stored_matches(session, 1, 4) == ()
        stored = session.get(MeasurementRecord, (1, "recurrence"))
        assert stored is not None and stored.settings["tokens"] == 4096
    assert save_recurrence(database, result("first", MATCH), CONFIG)
    with writing(database) as session:
        assert stored_matches(session, 1, 3) == (MATCH,)
        delete_index(session, 1)
        assert stored_matches(session, 1, 3) == ()
    database.dispose()
